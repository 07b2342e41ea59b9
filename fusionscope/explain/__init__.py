"""Everything becomes an explanation: outcomes, reasons, bytes, source lines and advice."""

from fusionscope.explain.explain import Selection, explain
from fusionscope.explain.result import Explanation, ModuleFacts, PairFacts

__all__ = ["Explanation", "ModuleFacts", "PairFacts", "Selection", "explain"]
