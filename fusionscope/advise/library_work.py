"""What the library computes on a CPU: the time of its code says little about that of other code.

The library, the compiler's own call for a single product, and a loop in a fusion differ by factors.
Outside of the library, products of small integers took 5.6 times as long, and sums of large arrays
2.2 times, with fewer launches and bytes.
"""

from __future__ import annotations

from fusionscope.history.kernels import KernelKind, instructions_in, launches_of
from fusionscope.hlo import Module

_PRODUCTS = frozenset({"convolution", "dot"})
_WORK = _PRODUCTS | {"reduce", "reduce-window"}


def changes_code(before: Module, after: Module, backend: str | None) -> bool:
    """Return whether the library computes fewer products or reductions in ``after`` than in
    ``before``, or other fusions more products. That counts on CPUs only: a GPU's cost model knows
    the code.
    """
    if backend != "cpu":
        return False
    old, new = _count(before), _count(after)
    return new[0] < old[0] or new[1] > old[1]


def _count(module: Module) -> tuple[int, int]:
    """Return how many products and reductions the library computes, and how many products other
    fusions do.
    """
    library = fused = 0
    for kernel in launches_of(module, "cpu"):
        if kernel.instruction.opcode != "fusion":
            continue
        opcodes = [inner.opcode for inner in instructions_in(kernel.instruction)]
        if kernel.kind is KernelKind.LIBRARY:
            library += sum(opcode in _WORK for opcode in opcodes)
        else:
            fused += sum(opcode in _PRODUCTS for opcode in opcodes)
    return library, fused
