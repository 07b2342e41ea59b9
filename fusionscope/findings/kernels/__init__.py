"""The finding ``kernels``."""
