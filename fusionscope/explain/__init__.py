"""Explanations: outcomes, reasons, bytes and source lines."""

from fusionscope.explain.explain import explain
from fusionscope.explain.selection import Selection
from fusionscope.facts.result import Explanation, ModuleFacts, PairFacts

__all__ = ["Explanation", "ModuleFacts", "PairFacts", "Selection", "explain"]
