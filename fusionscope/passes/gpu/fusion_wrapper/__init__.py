"""Wraps unfused operations, for GPUs."""
