"""Fusions of a normalization, which Triton computes."""
