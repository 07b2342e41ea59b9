"""The finding ``memory``."""
