"""Instruction fusion for GPUs: one run that computes nothing twice, and one that may."""
