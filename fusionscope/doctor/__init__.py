"""Checks an installation."""
