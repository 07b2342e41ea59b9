"""Wraps unfused operations, for CPUs."""
