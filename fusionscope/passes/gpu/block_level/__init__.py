"""Fusions that Triton emits instead of the loop emitter."""
