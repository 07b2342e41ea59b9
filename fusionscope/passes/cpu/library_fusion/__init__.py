"""Fusions that a CPU library (YNN) computes."""
