"""Explanations become a verdict: what is expected of a dump, and whether it is so."""
