"""Edits that were tried and do not help: what they save, `recipe_proofs.py` measures."""

from fusionscope.advise.recipes.example import Example

REJECTED: dict[str, Example] = {}
