"""Instruction fusion for GPUs: one run that duplicates nothing, and one that may."""
