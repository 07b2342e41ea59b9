"""The page that ``fusionscope report`` writes."""
