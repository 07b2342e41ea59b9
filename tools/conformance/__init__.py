"""Checks that hold fusionscope against the compiler, against itself, and against hostile input.

``python -m conformance CHECK`` runs one, with ``tools`` on ``PYTHONPATH``.
"""
