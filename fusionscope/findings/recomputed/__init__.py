"""The finding ``recomputed``."""
