"""The finding ``refusals``."""
