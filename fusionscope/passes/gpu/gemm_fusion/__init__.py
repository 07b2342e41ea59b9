"""Fusions around matrix multiplications, which Triton emits."""
