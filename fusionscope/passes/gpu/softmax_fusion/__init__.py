"""Fusions of normalizations, which Triton emits."""
