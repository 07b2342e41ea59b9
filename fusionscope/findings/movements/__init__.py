"""The finding ``movements``."""
