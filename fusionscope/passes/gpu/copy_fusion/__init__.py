"""Copies of what a fusion computes become outputs of it."""
