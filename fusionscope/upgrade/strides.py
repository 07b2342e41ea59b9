"""How much scatters write with a stride on a GPU, which no model of the compiler knows.

Neighbouring threads write neighbouring elements of a window of the updates. If another dimension
lies below the window in memory, each writes into a cache line of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.history.kernels import launches_of
from fusionscope.hlo import Instruction, Module


def strided_bytes(module: Module) -> int:
    """Return the bytes that scatters of a final module for a GPU write with a stride."""
    return sum(
        kernel.runs * scatter.operands[-1].shape.byte_size
        for kernel in launches_of(module, "gpu")
        for scatter in _scatters(kernel.instruction)
        if _has_stride(scatter)
    )


def _scatters(kernel: Instruction) -> Iterator[Instruction]:
    inside = (
        instruction for computation in kernel.called for instruction in computation.instructions
    )
    return (item for item in (kernel, *inside) if item.opcode == "scatter")


def _has_stride(scatter: Instruction) -> bool:
    target, updates = scatter.operands[0].shape, scatter.operands[-1].shape
    collapsed = {
        *scatter.attribute("inserted_window_dims"),
        *(scatter.attribute("input_batching_dims") or ()),
    }
    dimensions = (number for number in range(target.rank) if number not in collapsed)
    windows = zip(dimensions, scatter.attribute("update_window_dims"), strict=True)
    wide = {number for number, window in windows if updates.dimensions[window] != 1}
    order = target.layout.minor_to_major if target.layout else reversed(range(target.rank))
    for number in order:
        if target.dimensions[number] != 1:
            return bool(wide) and number not in wide
    return False
