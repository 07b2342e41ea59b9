"""Turns the stages of a module into a history: values, matched instructions, kernels, outcomes,
changes.
"""

from fusionscope.history.kernels import Kernel, KernelKind, find_kernels
from fusionscope.history.outcomes import Outcome, Pair, find_pairs
from fusionscope.history.values import NumberedModule, Numbering

__all__ = [
    "Kernel",
    "KernelKind",
    "NumberedModule",
    "Numbering",
    "Outcome",
    "Pair",
    "find_kernels",
    "find_pairs",
]
