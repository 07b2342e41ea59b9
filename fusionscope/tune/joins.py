"""Kernels of the compiler's own plan that can become one kernel with several results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fusionscope.graph.buffers import walk_control_flow
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.graph.properties import is_elementwise
from fusionscope.history.kernels import find_kernels
from fusionscope.history.outcomes import names_by_value
from fusionscope.history.values import Numbering
from fusionscope.rerun.legality import looped_shape
from fusionscope.rerun.plans import Plan
from fusionscope.tune.regions import between, with_constants

_PART_SIZES = (8, 2)  # kernels in a part of a group


@dataclass(frozen=True, slots=True)
class Join:
    """Kernels that can become one. ``what`` describes them, and ``members`` are the names of their
    operations before fusion.
    """

    what: str
    members: tuple[str, ...]


def find_joins(plan: Plan, backend: str | None) -> Iterator[Join]:
    """Yield each join once: first whole groups of kernels with loops of one shape between which
    nothing else has to run, then parts of large groups.
    """
    members = _members(plan, backend)
    before = {instruction.name: instruction for instruction in MutableModule(plan.before).walk()}
    groups = [
        group
        for computation in walk_control_flow(MutableModule(plan.after))
        for group in _groups(computation.post_order(), members)
    ]
    visited: set[frozenset[str]] = set()
    for kernels in _parts(groups):
        operations = {before[name] for kernel in kernels for name in members[kernel.name]}
        joined = with_constants(operations | between(operations))
        names = frozenset(operation.name for operation in joined)
        if names not in visited:
            visited.add(names)
            what = f"{len(kernels)} kernels, {kernels[0].name} to {kernels[-1].name}"
            yield Join(what, tuple(name for name in before if name in names))


def _parts(groups: Sequence[list[MutableInstruction]]) -> Iterator[list[MutableInstruction]]:
    """Yield the groups, and then their parts of each size. Each has at least two kernels."""
    for size in (max(map(len, groups), default=0), *_PART_SIZES):
        for group in groups:
            for first in range(0, len(group), size):
                part = group[first : first + size]
                if len(part) > 1:
                    yield part


def _members(plan: Plan, backend: str | None) -> dict[str, set[str]]:
    """Return the names before fusion of the operations of each kernel of the plan."""
    numbering = Numbering()
    names_of_values = names_by_value(numbering.number(plan.before))
    members: dict[str, set[str]] = {}
    for kernel in find_kernels(numbering.number(plan.after), backend):
        names = {names_of_values[value] for value in kernel.values if value in names_of_values}
        members.setdefault(kernel.name, set()).update(names)
    return members


def _groups(
    order: Sequence[MutableInstruction], members: dict[str, set[str]]
) -> Iterator[list[MutableInstruction]]:
    """Yield kernels of ``order`` that can run together: for each shape of a loop first with those
    that read one another, and then siblings alone.
    """
    kernels: dict[tuple[int | None, ...], set[MutableInstruction]] = defaultdict(set)
    for instruction in order:
        if members.get(instruction.name) and (shape := _loop_shape(instruction)) is not None:
            kernels[shape].add(instruction)
    for kernels_of_shape in kernels.values():
        for may_read in (True, False):
            groups = _by_level(order, kernels_of_shape, may_read=may_read)
            yield from (group for group in groups if len(group) > 1)


def _by_level(
    order: Sequence[MutableInstruction], kernels: set[MutableInstruction], *, may_read: bool
) -> Iterable[list[MutableInstruction]]:
    """Return ``kernels`` in groups, by how many groups have to run before each. With ``may_read``,
    a kernel that reads another directly goes into its group.
    """
    levels: dict[MutableInstruction, int] = {}
    groups: dict[int, list[MutableInstruction]] = defaultdict(list)
    for instruction in order:
        joins = may_read and instruction in kernels
        levels[instruction] = max(
            (
                levels[operand] + (operand in kernels and not joins)
                for operand in instruction.operands
            ),
            default=0,
        )
        if instruction in kernels:
            groups[levels[instruction]].append(instruction)
    return groups.values()


def _loop_shape(instruction: MutableInstruction) -> tuple[int | None, ...] | None:
    """Return the dimensions of the loop that a kernel runs, None if it runs no single loop."""
    if instruction.opcode != "fusion":
        is_loop = is_elementwise(instruction) and not instruction.shape.is_tuple
        return instruction.shape.dimensions if is_loop else None
    if instruction.fusion_kind not in ("kLoop", "kInput"):
        return None
    root = instruction.fused.root
    output = root.operands[0] if root.opcode == "tuple" else root
    return looped_shape(output, instruction).dimensions
