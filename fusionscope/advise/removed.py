"""Which kernels that only move data a change removes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fusionscope.findings.movements.find import moves_in
from fusionscope.history.kernels import launches_of
from fusionscope.hlo import Module

_Moved = tuple[tuple[str, str, str], ...]  # opcode, shape and framework's name of each movement


def removed_movements(
    final: Module, before: Module, after: Module, backend: str | None
) -> tuple[str, ...]:
    """Return the names of kernels of ``final`` that only move data and that a change removes.

    ``before`` and ``after`` are the module without and with the change after the same passes. A
    kernel is recognised by what it moves; of those that move the same, as many are removed as
    ``after`` has fewer.
    """
    fewer = Counter(moved for _, moved in _moving(before, backend))
    fewer.subtract(moved for _, moved in _moving(after, backend))
    names = []
    for name, moved in _moving(final, backend):
        if fewer[moved] > 0:
            fewer[moved] -= 1
            names.append(name)
    return tuple(names)


def _moving(module: Module, backend: str | None) -> Iterator[tuple[str, _Moved]]:
    """Yield the kernels that only move data: their names, and what they move."""
    for kernel in launches_of(module, backend):
        moves, is_alone = moves_in(kernel.instruction)
        if moves and is_alone:
            moved = ((move.opcode, str(move.shape), move.op_name or "") for move in moves)
            yield kernel.name, tuple(sorted(moved))
