"""The finding ``compile_time``."""
