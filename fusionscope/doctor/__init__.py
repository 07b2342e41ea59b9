"""Finds out what of an installation works."""
