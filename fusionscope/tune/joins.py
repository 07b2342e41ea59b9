"""Kernels of the compiler's own plan that can become one kernel with several results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
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

_SIZES = (8, 2)  # of the parts of a larger group


@dataclass(frozen=True, slots=True)
class Join:
    """Operations of several kernels, by their names before fusion. ``what`` describes it."""

    what: str
    members: tuple[str, ...]


def find_joins(plan: Plan, backend: str | None) -> Iterator[Join]:
    """Yield kernels that can run as one, the largest groups first: those with loops of the same
    shape between which nothing else has to run, siblings alone or also one that reads another; and
    parts of large groups.
    """
    members = _members(plan, backend)
    before = {instruction.name: instruction for instruction in MutableModule(plan.before).walk()}
    groups = [
        group
        for computation in walk_control_flow(MutableModule(plan.after))
        for group in _groups(computation.post_order(), members)
    ]
    visited: set[frozenset[str]] = set()
    for size in (max(map(len, groups), default=0), *_SIZES):
        for group in groups:
            for first in range(0, len(group), size):
                part = group[first : first + size]
                operations = {before[name] for member in part for name in members[member.name]}
                names = frozenset(
                    constant.name for constant in with_constants(operations | between(operations))
                )
                if len(part) > 1 and names not in visited:
                    visited.add(names)
                    what = f"{len(part)} kernels, {part[0].name} to {part[-1].name}"
                    yield Join(what, tuple(name for name in before if name in names))


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
    shapes: dict[MutableInstruction, tuple[int | None, ...]] = {}
    for instruction in order:
        if members.get(instruction.name) and (shape := _loop_of(instruction)) is not None:
            shapes[instruction] = shape
    for shape in dict.fromkeys(shapes.values()):
        kernels = {instruction for instruction, loop_shape in shapes.items() if loop_shape == shape}
        for follows in (True, False):
            level: dict[MutableInstruction, int] = {}  # how many groups precede it
            groups: dict[int, list[MutableInstruction]] = defaultdict(list)
            for instruction in order:
                stays = follows and instruction in kernels
                level[instruction] = max(
                    (level[o] + (o in kernels and not stays) for o in instruction.operands),
                    default=0,
                )
                if instruction in kernels:
                    groups[level[instruction]].append(instruction)
            yield from (group for group in groups.values() if len(group) > 1)


def _loop_of(instruction: MutableInstruction) -> tuple[int | None, ...] | None:
    """Return the shape of the loop of a kernel, None if it is no loop."""
    if instruction.opcode == "fusion":
        if instruction.fusion_kind not in ("kLoop", "kInput"):
            return None
        root = instruction.fused.root
        return looped_shape(
            root.operands[0] if root.opcode == "tuple" else root, instruction
        ).dimensions
    return (
        instruction.shape.dimensions
        if is_elementwise(instruction) and not instruction.shape.is_tuple
        else None
    )
