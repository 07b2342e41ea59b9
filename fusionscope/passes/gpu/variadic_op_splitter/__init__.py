"""Splits operations of very many operands."""
