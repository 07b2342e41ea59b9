"""Checks that compare fusionscope with the compiler and with itself, and try hostile input.

``python -m conformance CHECK`` runs one, with ``tools`` on ``PYTHONPATH``.
"""
