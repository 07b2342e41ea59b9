"""Fusions that Triton computes in place of the emitter for loops."""
