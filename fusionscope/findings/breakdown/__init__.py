"""The finding ``breakdown``."""
