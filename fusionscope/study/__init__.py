"""Compiles several versions of one program, and runs them side by side."""
