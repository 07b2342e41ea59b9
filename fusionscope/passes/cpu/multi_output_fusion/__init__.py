"""Fusions of several outputs, for CPUs."""
