"""Which code computes matrix products on a CPU: its time says little about that of other code.

A library, the compiler's own call for a single product, and a loop in a fusion differ by factors:
products of small integers outside of the library took 5.6 times as long.
"""

from __future__ import annotations

from fusionscope.history.kernels import KernelKind, instructions_in, launches_of
from fusionscope.hlo import Module

_PRODUCTS = frozenset({"convolution", "dot"})


def moves_products(before: Module, after: Module, backend: str | None) -> bool:
    """Return whether ``after`` computes fewer products by a library than ``before``, or more of
    them in other fusions. That counts on CPUs only: a GPU's cost model knows the code.
    """
    if backend != "cpu":
        return False
    old, new = _count(before), _count(after)
    return new[0] < old[0] or new[1] > old[1]


def _count(module: Module) -> tuple[int, int]:
    """Return how many products a library computes, and how many other fusions do."""
    library = fused = 0
    for kernel in launches_of(module, "cpu"):
        products = sum(each.opcode in _PRODUCTS for each in instructions_in(kernel.instruction))
        if kernel.kind is KernelKind.LIBRARY and kernel.instruction.opcode == "fusion":
            library += products
        elif kernel.instruction.opcode == "fusion":
            fused += products
    return library, fused
