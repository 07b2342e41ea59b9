"""Turns explanations into a verdict: expectations for a dump, and whether they hold."""
