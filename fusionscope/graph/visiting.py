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
    root = computation.root
    starts = [
        instruction
        for instruction in computation.instructions
        if not instruction.users and instruction is not root
    ]
    open_: set[MutableInstruction] = set()
    pending = [root, *reversed(starts)]
    while pending:
        current = pending[-1]
        if current in visited or current in open_:
            pending.pop()
            if current not in visited:
                action(current)
                visited.add(current)
            continue
        open_.add(current)
        pending.extend(operand for operand in reversed(current.operands) if operand not in visited)
