"""Sorts take the iota that they read with them."""
