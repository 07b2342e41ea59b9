"""Presents results; nothing is computed here."""
