"""Instruction fusion for CPUs."""
