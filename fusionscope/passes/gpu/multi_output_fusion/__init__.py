"""Fusions of several outputs, for GPUs."""
