"""Visits a computation that is changed at the same time."""

from __future__ import annotations

from collections.abc import Callable

from fusionscope.graph.mutable import MutableComputation, MutableInstruction


def visit(
    computation: MutableComputation,
    action: Callable[[MutableInstruction], None],
    visited: set[MutableInstruction],
) -> None:
    """Visit each instruction once, after its operands at that time, except those already
    ``visited``, to which ``action`` may add. A new instruction is visited only if a later one reads
    it.

    Source: Accept in xla/hlo/ir/hlo_computation.cc, PostOrderDFS in hlo_instruction.cc.
    """
    unread = [
        instruction
        for instruction in computation.instructions
        if not instruction.users and not instruction.successors and not instruction.is_root
    ]
    opened: set[MutableInstruction] = set()
    for start in (*unread, None):
        pending = [start or computation.root]
        while pending:
            current = pending[-1]
            if current in visited or current in opened:
                pending.pop()
                if current not in visited:
                    action(current)
                    visited.add(current)
                continue
            opened.add(current)
            children = (*current.operands, *current.predecessors)
            pending.extend(child for child in reversed(children) if child not in visited)
