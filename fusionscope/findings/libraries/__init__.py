"""The finding ``libraries``."""
