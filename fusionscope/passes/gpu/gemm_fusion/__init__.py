"""Fusions around matrix multiplications, which Triton computes."""
