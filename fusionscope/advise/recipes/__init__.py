"""Edits of a program that make its kernels fewer or lighter."""
