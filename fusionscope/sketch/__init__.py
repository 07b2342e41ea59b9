"""Writes kernels as programs in JAX, from which someone can go on by hand."""
