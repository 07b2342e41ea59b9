"""The finding ``resources``."""
