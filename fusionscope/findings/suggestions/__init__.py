"""The finding ``suggestions``."""
