"""Finds the smallest set of fusions that changes the results of a program, or makes it slow."""
