"""Values that a loop stores for its gradient, computed again instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.loops import (
    Loop,
    StepNumbers,
    element_of,
    extend_state,
    find_loops,
    freeze,
)
from fusionscope.advise.recipes.patterns import is_zero, unspread
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.advise.recipes.rows import Stack, read_row, read_stack, write_rows
from fusionscope.graph.fusing import add_element, clone_into
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_operand
from fusionscope.graph.properties import has_side_effect

_HEAVY = frozenset(
    {"convolution", "dot", "fft", "gather", "reduce", "reduce-window", "scatter", "sort"}
)
_NEVER = frozenset({"call", "conditional", "custom-call", "rng", "rng-bit-generator", "while"})


@dataclass(frozen=True, slots=True)
class RecomputeResiduals(Recipe):
    """What is stored instead takes at most ``most_share`` percent of the bytes. ``with_products``
    is whether products and sums are computed again, too.
    """

    with_products: bool = True
    most_share: int = 50
    id: ClassVar = "recompute-residuals"
    title: ClassVar = "residuals of a loop computed again in its gradient (`jax.checkpoint`)"
    what: ClassVar = (
        "A `scan` stores values of each step, and the loop of its gradient reads them. The state "
        "before each step is stored instead, and the gradient computes the values again from it, "
        "as with `jax.checkpoint` around the step. Then the same without products and sums, which "
        "stay stored, as with the policy `dots_saveable`."
    )
    why: ClassVar = (
        "Elementwise operations take less time than writing their results to memory and reading "
        "them: the gradient computes them where it needs them. The program needs less memory."
    )
    backfires: ClassVar = (
        "Every product is computed once more. On a GPU each step of the gradient launches the "
        "kernels of the forward step, too."
    )
    backends: ClassVar = frozenset({"cpu", "gpu", "tpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[32,32]", "f32[1024,32]"),
        """
def program(weights, start):
    def loss(weights):
        def step(state, _):
            return jax.nn.gelu(state @ weights) + 0.5 * state, None

        return (lax.scan(step, start, length=32)[0] ** 2).mean()

    return jax.grad(loss)(0.1 * weights)
""",
        """
def program(weights, start):
    def loss(weights):
        @jax.checkpoint
        def step(state, _):
            return jax.nn.gelu(state @ weights) + 0.5 * state, None

        return (lax.scan(step, start, length=32)[0] ** 2).mean()

    return jax.grad(loss)(0.1 * weights)
""",
    )

    @property
    def variants(self) -> tuple[Recipe, ...]:
        return self, replace(self, with_products=not self.with_products)

    @property
    def words(self) -> str:
        if self.with_products:
            return self.title
        return (
            "residuals of a loop, except products, computed again in its gradient "
            "(`jax.checkpoint` with the policy `dots_saveable`)"
        )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        loops = list(find_loops(graph))
        for backward in loops:
            for forward in loops:
                if forward is not backward and forward.steps == backward.steps:
                    plan = self._plan(forward, backward)
                    if plan is not None:
                        at, also = forward.instruction, (backward.instruction,)
                        yield Site(at, partial(plan.carry_out, forward, backward), also)

    def _plan(self, forward: Loop, backward: Loop) -> _Plan | None:
        residuals = list(_find_residuals(forward, backward))
        if not residuals:
            return None
        order = {item: place for place, item in enumerate(forward.body.post_order())}
        residuals.sort(key=lambda residual: order[_value_of(residual.stack.update)])
        plan = _Plan(residuals[0])
        for residual in residuals:
            update = residual.stack.update
            is_state = element_of(unspread(update)) is not None
            sources = None if is_state else plan.sources(forward, update)
            is_light = sources is not None and all(item.opcode not in _HEAVY for item in sources)
            if sources is None or not (self.with_products or is_light):
                plan.stored[_value_of(update)] = residual
            else:
                plan.computed.append(residual)
        stored = sum(start.shape.byte_size or 0 for start in plan.states(forward))
        saved = sum(residual.stack.update.shape.byte_size or 0 for residual in plan.computed)
        return plan if saved and 100 * stored <= self.most_share * saved else None


@dataclass(frozen=True, slots=True)
class _Residual:
    """What each step of one loop stores, as an array that only another loop reads: in
    ``readers``, the row at ``place`` of each of its steps.
    """

    stack: Stack
    readers: Sequence[MutableInstruction]
    place: MutableInstruction
    numbers: Sequence[int]


def _find_residuals(forward: Loop, backward: Loop) -> Iterator[_Residual]:
    """Yield the residuals of ``forward`` whose rows ``backward`` reads in one order."""
    forward_numbers, backward_numbers = StepNumbers(forward), StepNumbers(backward)
    invariants, common = backward.invariants, None
    for element in forward.instruction.users:
        places = [place for place, start in enumerate(backward.starts) if start is element]
        stack = read_stack(forward, forward_numbers, element.attribute("index"))
        if stack is None or len(element.users) != 1 or len(places) != 1:
            continue
        readers = [user for item in backward.elements(places[0]) for user in item.users]
        readers = [reader for reader in readers if reader is not backward.body.root]
        if places[0] not in invariants or not readers:
            continue
        numbers = [_row_numbers(reader, stack, backward_numbers) for reader in readers]
        common = common or (stack.numbers, numbers[0])
        if None not in numbers and all((stack.numbers, steps) == common for steps in numbers):
            yield _Residual(stack, readers, readers[0].operands[1], numbers[0] or ())


def _row_numbers(
    reader: MutableInstruction, stack: Stack, numbers: StepNumbers
) -> Sequence[int] | None:
    """Return which row ``reader`` reads in each step; None if it reads something else."""
    if reader.opcode != "dynamic-slice" or reader.shape.dimensions != stack.update.shape.dimensions:
        return None
    _, place, *later = reader.operands
    rows = numbers.of(place) if all(map(is_zero, later)) else None
    is_inside = rows is not None and min(rows) >= 0 and max(rows) < len(stack.numbers)
    return rows if is_inside else None


def _value_of(update: MutableInstruction) -> MutableInstruction:
    """Return what is stored, without the dimension of steps."""
    return update.operands[0] if update.opcode == "reshape" else update


class _Plan:
    """``computed`` are the residuals that the gradient computes again, ``stored`` those that it
    reads, by their value. ``first`` is one of them.
    """

    def __init__(self, first: _Residual) -> None:
        self._first = first
        self.stored: dict[MutableInstruction, _Residual] = {}
        self.computed: list[_Residual] = []

    def sources(
        self, forward: Loop, value: MutableInstruction
    ) -> dict[MutableInstruction, None] | None:
        """Return what has to be computed for ``value``, users first; None if not all of it can be
        computed in the other loop.
        """
        sources: dict[MutableInstruction, None] = {}
        pending = [value]
        while pending:
            instruction = pending.pop()
            if instruction in sources or instruction in self.stored:
                continue
            index = element_of(instruction)
            if index is not None:
                if index in forward.counters and not self._counts_rows(forward, index):
                    return None
            elif instruction.opcode in _NEVER or has_side_effect(instruction):
                return None
            else:
                pending += instruction.operands
            sources[instruction] = None
        return sources

    def _counts_rows(self, forward: Loop, index: int) -> bool:
        """Return whether a counter is the number of the row that a step writes."""
        return forward.count(index)[:-1] == list(self._first.stack.numbers)

    def _needs(self, forward: Loop) -> set[MutableInstruction]:
        """Return what has to be computed or read in the other loop."""
        sources: set[MutableInstruction] = set()
        for residual in self.computed:
            sources.update(self.sources(forward, residual.stack.update) or ())
        return sources

    def states(self, forward: Loop) -> list[MutableInstruction]:
        """Return the elements of the state that have to be stored: how they start."""
        return [forward.starts[index] for index in self._changing(forward)]

    def _changing(self, forward: Loop) -> list[int]:
        return [index for index in _indices(self._needs(forward)) if index not in forward.settled]

    def carry_out(self, forward: Loop, backward: Loop) -> None:
        """Store the state in ``forward``, and compute the residuals in ``backward``."""
        sources = self._needs(forward)
        order = [item for item in forward.body.post_order() if item in sources]
        rows = self._store(forward)
        near, place = self._first.readers[0], self._first.place
        elements: dict[int, MutableInstruction] = {}
        for index in _indices(order):
            if index in forward.counters:
                elements[index] = place
            elif index in rows:
                stack = extend_state(backward, add_element(forward.instruction, rows[index]))
                shape = forward.starts[index].shape
                elements[index] = read_row(stack, place, shape, near)
            else:
                elements[index] = extend_state(backward, forward.starts[index])
        values: dict[MutableInstruction, MutableInstruction] = {}
        for value, residual in self.stored.items():
            (reader, *_) = residual.readers
            values[value] = _reshaped(reader, value)
        for item in order:
            element = element_of(item)
            if element is not None:
                values[item] = elements[element]
            else:
                operands = [values[operand] for operand in item.operands]
                values[item] = clone_into(item, backward.body, operands)
        for residual in self.computed:
            for reader in residual.readers:
                for user in list(reader.users):
                    replace_operand(user, reader, values[residual.stack.update])
            freeze(forward, residual.stack.index)

    def _store(self, forward: Loop) -> dict[int, int]:
        """Let ``forward`` store the elements of its state that are read, before each step. Return
        the indices of the arrays by those of the elements.
        """
        place = self._first.stack.place
        return {
            index: write_rows(forward, forward.elements(index)[0], place)
            for index in self._changing(forward)
        }


def _indices(values: Iterable[MutableInstruction]) -> list[int]:
    """Return the indices of the elements of the state among ``values``."""
    return sorted({index for value in values if (index := element_of(value)) is not None})


def _reshaped(row: MutableInstruction, value: MutableInstruction) -> MutableInstruction:
    """Return a row in the shape of ``value``."""
    if row.shape.dimensions == value.shape.dimensions:
        return row
    return row.computation.make("reshape", value.shape, [row])
