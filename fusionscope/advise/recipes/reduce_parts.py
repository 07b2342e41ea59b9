"""A concatenation that is only reduced along its own dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import build, combiner, is_neutral, scalar, text_of
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.fusing import clone_into
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_and_prune
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.shape import Shape


class ReduceParts(Recipe):
    __slots__ = ()
    id: ClassVar = "reduce-parts"
    title: ClassVar = "each part of a concatenation reduced by itself"
    what: ClassVar = (
        "Every user of a concatenation, or of elementwise operations on it, is a sum, product, "
        "maximum or minimum over the concatenated dimension. Each part is reduced by itself, and "
        "the results are combined."
    )
    why: ClassVar = (
        "A value with several users is not fused into each of them if it is expensive to compute "
        "again, so the whole concatenation goes through memory. The parts are fused into their "
        "reductions."
    )
    backfires: ClassVar = (
        "Each part has a kernel of its own: with many small parts the launches cost more than the "
        "bytes. Sums of floating point numbers are rounded differently."
    )
    backends: ClassVar = frozenset({"cpu", "gpu", "tpu"})
    tolerance: ClassVar = 1e-6
    example: ClassVar = Example(
        ("f32[1024,512]", "f32[1024,512]"),
        """
def program(some, others):
    joined = jnp.concatenate([jnp.tanh(some), jnp.exp(others)], axis=1)
    return joined.sum(axis=1), (joined * joined).sum(axis=1)
""",
        """
def program(some, others):
    parts = jnp.tanh(some), jnp.exp(others)
    return (
        sum(part.sum(axis=1) for part in parts),
        sum((part * part).sum(axis=1) for part in parts),
    )
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            if instruction.opcode == "concatenate" and len(instruction.operands) > 1:
                reading = _read_on(instruction)
                if reading is not None and len(instruction.users) > 1:
                    yield Site(instruction, partial(_rewrite, instruction, *reading))


def _read_on(
    concatenate: MutableInstruction,
) -> tuple[list[MutableInstruction], list[MutableInstruction]] | None:
    """Return the elementwise operations on the concatenation, operands first, and the reductions in
    which they end; None if they end in something else.
    """
    (dimension,) = concatenate.attribute("dimensions")
    inside: dict[MutableInstruction, None] = {concatenate: None}
    reductions: dict[MutableInstruction, None] = {}
    pending = [concatenate]
    while pending:
        value = pending.pop()
        for user in value.users:
            if user.opcode == "reduce":
                if not _reduces(user, dimension):
                    return None
                reductions[user] = None
            elif not (is_elementwise(user) and user.shape.is_array and not user.called):
                return None
            elif user not in inside and all(
                operand in inside or scalar(operand) is not None for operand in user.operands
            ):
                inside[user] = None
                pending.append(user)
    members = inside.keys() | reductions.keys()
    if any(
        instruction.is_root or any(user not in members for user in instruction.users)
        for instruction in inside
    ):
        return None
    return (list(inside)[1:], list(reductions)) if reductions else None


def _reduces(reduction: MutableInstruction, dimension: int) -> bool:
    return (
        len(reduction.operands) == 2
        and combiner(reduction) is not None
        and is_neutral(reduction)
        and dimension in reduction.attribute("dimensions")
    )


def _of_part(
    original: MutableInstruction,
    part: MutableInstruction,
    parts: Mapping[MutableInstruction, MutableInstruction],
    dimension: int,
) -> MutableInstruction:
    """Return ``original`` computed from one part of its operand."""

    def shape_of(whole: Shape) -> Shape:
        sizes = list(whole.dimensions)
        sizes[dimension] = part.shape.dimensions[dimension]
        return replace(whole, dimensions=tuple(sizes), layout=None)

    operands = []
    for operand in original.operands:
        if operand in parts:
            operands.append(parts[operand])
        elif operand.shape.rank == 0:
            operands.append(operand)
        else:
            scalar_line = f"one = {operand.shape.element_type}[] constant({scalar(operand)})"
            all_ = f"ROOT all = {shape_of(operand.shape)} broadcast(one), dimensions={{}}"
            operands.append(build(original, f"{scalar_line}\n{all_}", []))
    clone = clone_into(original, original.computation, operands)
    clone.shape = shape_of(original.shape)
    return clone


def _rewrite(
    concatenate: MutableInstruction,
    between: list[MutableInstruction],
    reductions: list[MutableInstruction],
) -> None:
    (dimension,) = concatenate.attribute("dimensions")
    results: dict[MutableInstruction, list[MutableInstruction]] = {r: [] for r in reductions}
    for part in list(concatenate.operands):
        parts = {concatenate: part}
        for instruction in between:
            parts[instruction] = _of_part(instruction, part, parts, dimension)
        for reduction in reductions:
            value, start = reduction.operands
            clone = clone_into(reduction, reduction.computation, [parts[value], start])
            results[reduction].append(clone)
    for reduction, values in results.items():
        opcode = combiner(reduction)
        total = values[0]
        for value in values[1:]:
            total = build(
                reduction, f"ROOT total = {text_of(reduction)} {opcode}(%p0, %p1)", [total, value]
            )
        replace_and_prune(reduction, total)
