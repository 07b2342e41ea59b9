"""Finds instructions that took over the name of their user.

An instruction that replaces one of the same opcode gets its name. Its earlier name is gone, but
the instruction remains. Source: xla/hlo/ir/hlo_computation.cc,
ReplaceInstructionWithDifferentShape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fusionscope.graph.comparison import meaning_of
from fusionscope.hlo.attributes import split_attributes

if TYPE_CHECKING:
    from fusionscope.hlo import Computation
    from fusionscope.hlo.model import Statement
    from fusionscope.user_order.infer_user_order import StageGraph


def find_renamed(before: StageGraph, after: StageGraph) -> dict[str, str]:
    """Return the earlier names of operands that replaced their user and have its name now."""
    renamed: dict[str, str] = {}
    for computation in after.unshared(before):
        earlier = before.computations.get(computation.name)
        if earlier is not None:
            renamed |= _find_in(before, after, earlier, computation)
    return renamed


def _find_in(
    before: StageGraph, after: StageGraph, earlier: Computation, computation: Computation
) -> dict[str, str]:
    old, new = before.bodies[earlier.body], after.bodies[computation.body]
    lines = {statement.name: statement for statement in old.statements}
    now = {statement.name: statement for statement in new.statements}
    renamed: dict[str, str] = {}
    names: dict[str, str] = {}
    for user, operand in _replaceable(old.operands, lines, now):
        reads = [names.get(name, name) for name in old.operands[operand]]
        does_same = _meaning(earlier, lines[operand]) == _meaning(computation, now[user])
        if reads == new.operands[user] and does_same:
            renamed[user] = operand
            names[operand] = user
    return renamed


def _replaceable(
    operands: Mapping[str, Sequence[str]],
    lines: Mapping[str, Statement],
    now: Mapping[str, Statement],
) -> Iterator[tuple[str, str]]:
    """Yield changed instructions, each with an operand of the same opcode whose name is gone."""
    for user, line in lines.items():
        if user in now and now[user] != line and now[user].opcode == line.opcode:
            for operand in operands[user]:
                if operand not in now and lines[operand].opcode == line.opcode:
                    yield user, operand


def _meaning(computation: Computation, statement: Statement) -> object:
    shape = computation.body.shapes[statement.shape] if statement.shape else None
    return shape, meaning_of(split_attributes(statement.attributes))
