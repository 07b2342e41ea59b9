"""Fuses sorts with the iotas that they read."""
