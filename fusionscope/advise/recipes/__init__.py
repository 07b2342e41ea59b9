"""Edits of a program that result in fewer or cheaper kernels."""
