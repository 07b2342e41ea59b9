"""Arrays of a few components as one array for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.components import (
    component_shape,
    first_of,
    form_of,
    place_in,
    reduce_without,
    slice_without,
    sums_components,
    takes_component,
)
from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import combiner, integers
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.fusing import clone_into
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    replace_and_prune,
    slots_of,
)
from fusionscope.hlo.shape import Shape

_Parts = list[MutableInstruction]


@dataclass(frozen=True, slots=True)
class TakeApart(Recipe):
    """Arrays have at most ``most_components``, a gather or scatter at least ``least_elements``."""

    most_components: int = 4
    least_elements: int = 4096
    id: ClassVar = "take-apart"
    title: ClassVar = "an array for each of a few components, such as x, y and z"
    what: ClassVar = (
        "Rows of two to four elements, such as the coordinates of points, are gathered by an "
        "index, computed with and summed, and in the gradient scattered. Each component becomes an "
        "array of its own: three gathers of one element instead of one of three."
    )
    why: ClassVar = (
        "Vector instructions and threads work on neighbours in memory: with three elements in a "
        "row most of their width is unused, and a sum over three elements is a loop of its own, or "
        "ends a fusion. Sums over components become additions, which are fused."
    )
    backfires: ClassVar = (
        "The indices are read once for each component. Where the whole rows are needed elsewhere, "
        "such as in a matrix product, the components are put together again."
    )
    backends: ClassVar = frozenset({"cpu", "tpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[2048,3]", "s32[2048,32]"),
        """
def program(points, neighbours):
    def energy(points):
        apart = points[:, None] - points[neighbours]
        return jnp.exp(-(apart**2).sum(-1)).sum()

    return jax.grad(energy)(points)
""",
        """
def program(points, neighbours):
    def energy(components):
        apart = [component[:, None] - component[neighbours] for component in components]
        return jnp.exp(-sum(component**2 for component in apart)).sum()

    return jnp.stack(jax.grad(energy)(list(points.T)), axis=-1)
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        members: dict[MutableInstruction, int] = {}
        for instruction in list(graph.walk()):
            start = instruction
            if backend == "tpu" and _sums_last(instruction):
                start = instruction.operands[0]
            elif instruction.opcode not in ("gather", "scatter"):
                continue
            place = self._components(start) if start not in members else None
            if place is not None:
                places = _spread(start, place)
                members |= places
                yield Site(start, partial(_rewrite, places), also=tuple(places))

    def _components(self, instruction: MutableInstruction) -> int | None:
        """Return the dimension along which a value has components, of a scatter what it adds."""
        moved = instruction.operands[-1] if instruction.opcode == "scatter" else instruction
        if not instruction.shape.is_array or (moved.shape.element_count or 0) < self.least_elements:
            return None
        place = instruction.shape.rank - 1 if instruction.shape.is_array else -1
        is_few = (
            place > 0 and 1 < (instruction.shape.dimensions[place] or 0) <= self.most_components
        )
        return place if is_few and form_of(instruction, place) is not None else None


def _sums_last(instruction: MutableInstruction) -> bool:
    """Return whether it is a reduction of rows to the sums of their elements."""
    if instruction.opcode != "reduce" or not instruction.operands[0].shape.is_array:
        return False
    return sums_components(instruction, 0, instruction.operands[0].shape.rank - 1)


def _spread(start: MutableInstruction, place: int) -> dict[MutableInstruction, int]:
    """Return everything around ``start`` that computes each component by itself, with the dimension
    of its components.
    """
    places = {start: place}
    pending = [start]
    while pending:
        value = pending.pop()
        for near, at in (*_read(value, places[value]), *_readers(value, places[value])):
            if near not in places:
                places[near] = at
                pending.append(near)
    return places


def _read(value: MutableInstruction, place: int) -> Iterator[tuple[MutableInstruction, int]]:
    form = form_of(value, place)
    assert form is not None, value.opcode
    for operand, at in zip(value.operands, form.places, strict=True):
        if at is not None and form_of(operand, at) is not None:
            yield operand, at


def _readers(value: MutableInstruction, place: int) -> Iterator[tuple[MutableInstruction, int]]:
    for user in value.users:
        for slot in slots_of(user, value):
            at = place_in(user, slot, place)
            if at is not None:
                yield user, at


@dataclass(frozen=True, slots=True)
class _Splitter:
    """Computes each component by itself for the keys of ``places``, which are in ``target``.

    ``parts`` are their components, ``cuts`` those of what they read along a dimension.
    """

    target: MutableComputation
    places: Mapping[MutableInstruction, int]
    parts: dict[MutableInstruction, _Parts] = field(default_factory=dict)
    cuts: dict[tuple[MutableInstruction, int], _Parts] = field(default_factory=dict)

    def split(self, value: MutableInstruction) -> None:
        """Compute the components of ``value``. What it reads comes first."""
        place = self.places[value]
        form = form_of(value, place)
        assert form is not None, value.opcode
        shape, self.parts[value] = component_shape(value.shape, place), []
        for number in range(value.shape.dimensions[place] or 0):
            operands = [
                operand if at is None else self._part(operand, at, number)
                for operand, at in zip(value.operands, form.places, strict=True)
            ]
            part = clone_into(value, self.target, operands)
            part.attributes_text, part.shape = form.text, shape
            self.parts[value].append(part)

    def _part(self, value: MutableInstruction, place: int, number: int) -> MutableInstruction:
        if self.places.get(value) == place:
            return self.parts[value][number]
        if (value, place) not in self.cuts:
            sizes = range(value.shape.dimensions[place] or 0)
            self.cuts[value, place] = [self._cut(value, place, number) for number in sizes]
        return self.cuts[value, place][number]

    def _cut(self, value: MutableInstruction, place: int, number: int) -> MutableInstruction:
        sizes = list(value.shape.dimensions)
        bounds = [f"[0:{size}]" for size in sizes]
        bounds[place], sizes[place] = f"[{number}:{number + 1}]", 1
        row = Shape(value.shape.element_type, tuple(sizes))
        cut = self.target.make("slice", row, [value], f", slice={{{', '.join(bounds)}}}")
        return self.target.make("reshape", component_shape(value.shape, place), [cut])

    def release(self, value: MutableInstruction) -> None:
        """Let what reads ``value``, apart from other keys, read its components."""
        place, parts = self.places[value], self.parts[value]
        for user in list(value.users):
            (slot, *more) = slots_of(user, value)
            if not more and sums_components(user, slot, place):
                replace_and_prune(user, _sum(user, parts, place))
            elif takes_component(user, place):
                replace_and_prune(user, _take(user, parts, place))
        if value.parent is not None and (value.users or value.is_root):
            replace_and_prune(value, self._join(value, place))

    def _join(self, value: MutableInstruction, place: int) -> MutableInstruction:
        kind, sizes = value.shape.element_type, list(value.shape.dimensions)
        sizes[place] = 1
        row = Shape(kind, tuple(sizes))
        rows = [self.target.make("reshape", row, [part]) for part in self.parts[value]]
        text = f", dimensions={integers([place])}"
        return self.target.make("concatenate", replace(value.shape, layout=None), rows, text)


def _sum(reduction: MutableInstruction, parts: _Parts, place: int) -> MutableInstruction:
    target, opcode = reduction.computation, combiner(reduction)
    assert opcode is not None
    total, *later = parts
    for part in later:
        total = target.make(opcode, total.shape, [total, part])
    text = reduce_without(reduction, place)
    if text is None:
        return total
    remainder = clone_into(reduction, target, [total, reduction.operands[1]])
    remainder.attributes_text = text
    return remainder


def _take(cut: MutableInstruction, parts: _Parts, place: int) -> MutableInstruction:
    part = parts[first_of(cut, place)]
    target = cut.computation
    if part.shape.rank:
        part = clone_into(cut, target, [part])
        part.attributes_text = slice_without(cut, place)
        part.shape = component_shape(cut.shape, place)
    return target.make("reshape", cut.shape, [part])


def _rewrite(places: Mapping[MutableInstruction, int]) -> None:
    target = next(iter(places)).computation
    values = [value for value in target.post_order() if value in places]
    splitter = _Splitter(target, places)
    for value in values:
        splitter.split(value)
    for value in reversed(values):
        splitter.release(value)
