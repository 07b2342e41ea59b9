"""The fusion merger: it merges a fusion into all of its users, or leaves it."""
