"""The finding ``measured``."""
