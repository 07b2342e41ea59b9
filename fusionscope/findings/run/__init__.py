"""The finding ``run``."""
