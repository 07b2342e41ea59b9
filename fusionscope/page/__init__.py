"""The data of the page that ``fusionscope report`` writes."""
