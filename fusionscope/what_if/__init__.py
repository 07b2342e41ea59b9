"""Replays under other rules, or for another GPU."""
