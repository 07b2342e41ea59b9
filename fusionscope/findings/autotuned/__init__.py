"""The finding ``autotuned``."""
