"""Explanations: outcomes, reasons, bytes and source lines."""

from fusionscope.explain.explain import explain
from fusionscope.explain.result import Explanation, ModuleFacts, PairFacts
from fusionscope.explain.selection import Selection

__all__ = ["Explanation", "ModuleFacts", "PairFacts", "Selection", "explain"]
