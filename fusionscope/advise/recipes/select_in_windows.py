"""The gradient of a maximum over windows that do not overlap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import array, integers, is_zero, put, text_of
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo.window import window_dimensions


@dataclass(frozen=True, slots=True)
class SelectInWindows(Recipe):
    """``most`` is the largest size of a window, in elements."""

    most: int = 16
    id: ClassVar = "select-in-windows"
    title: ClassVar = "a selection in each window instead of the gradient of `max_pool`"
    what: ClassVar = (
        "`max_pool` with windows that do not overlap, and its gradient, which writes to the "
        "largest element of each window. The gradient becomes a selection of the first place in "
        "the window that equals its largest element."
    )
    why: ClassVar = (
        "The compiler makes a search for positions, which writes one array for each dimension, "
        "and a scatter into zeros of it: kernels of their own. A selection is elementwise, and is "
        "fused with its neighbours."
    )
    backfires: ClassVar = (
        "With large windows each element is compared with many others. The place of the edit is "
        "the pooling: the maximum over a reshaped array, which is shorter, shares the gradient "
        "among equal elements."
    )
    backends: ClassVar = frozenset({"cpu", "gpu"})
    tolerance: ClassVar = 1e-6
    example: ClassVar = Example(
        ("f32[32,64,64,32]", "f32[32,32,32,32]"),
        """
def program(values, weights):
    def loss(values):
        largest = jax.lax.reduce_window(
            values, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "valid"
        )
        return (jnp.sin(largest) * weights).sum()

    return jax.grad(loss)(values) * 2
""",
        """
def program(values, weights):
    def loss(values):
        corners = [values[:, row::2, column::2] for row in (0, 1) for column in (0, 1)]
        largest = corners[0]
        for corner in corners[1:]:
            largest = jnp.where(corner > largest, corner, largest)
        return (jnp.sin(largest) * weights).sum()

    return jax.grad(loss)(values) * 2
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            if instruction.opcode == "select-and-scatter" and self._fits(instruction):
                yield Site(instruction, partial(_rewrite, instruction))

    def _fits(self, instruction: MutableInstruction) -> bool:
        values, _, start = instruction.operands
        window = window_dimensions(instruction.attribute("window") or {})
        if len(window) != values.shape.rank or len(instruction.called) != 2:
            return False
        select, scatter = instruction.called
        count = 1
        for size, dimension in zip(values.shape.dimensions, window, strict=True):
            is_apart = dimension.stride == dimension.size and not (dimension.low or dimension.high)
            if not is_apart or dimension.window_dilation != 1 or (size or 1) % dimension.size:
                return False
            count *= dimension.size
        return (
            1 < count <= self.most
            and is_zero(start)
            and scatter.root.opcode == "add"
            and select.root.opcode == "compare"
            and select.root.attribute("direction") == "GE"
            and select.root.operands == select.parameters
        )


def _rewrite(instruction: MutableInstruction) -> None:
    values, gradient, _ = instruction.operands
    sizes = [dimension.size for dimension in window_dimensions(instruction.attribute("window"))]
    windows, kind = gradient.shape.dimensions, gradient.shape.element_type
    # Each dimension of the windows, followed by the places in a window if there are several.
    split: list[int | None] = []
    outer, inner = [], []
    for count, size in zip(windows, sizes, strict=True):
        outer.append(len(split))
        split.append(count)
        if size > 1:
            inner.append(len(split))
            split.append(size)
    whole, mask = array(kind, split), array("pred", split)
    inside = array("s32", [split[place] for place in inner])
    spread = integers(outer)
    put(
        instruction,
        f"""
        {_search(values, gradient, sizes)}
        chosen = {array("s32", split)} broadcast(place), dimensions={spread}
        place_numbers = s32[{math.prod(sizes)}] iota(), iota_dimension=0
        in_window = {inside} reshape(place_numbers)
        places = {array("s32", split)} broadcast(in_window), dimensions={integers(inner)}
        is_chosen = {mask} compare(places, chosen), direction=EQ
        gradients = {whole} broadcast(%p1), dimensions={spread}
        zero = {kind}[] constant(0)
        zeros = {whole} broadcast(zero), dimensions={{}}
        selected = {whole} select(is_chosen, gradients, zeros)
        ROOT result = {text_of(values)} reshape(selected)
        """,
        [values, gradient],
    )


def _search(values: MutableInstruction, gradient: MutableInstruction, sizes: Sequence[int]) -> str:
    """Return HLO for ``place``, the number of the first largest element of each window."""
    part = text_of(gradient)
    windows = gradient.shape.dimensions
    numbers, mask = array("s32", windows), array("pred", windows)
    corners = list(itertools.product(*map(range, sizes)))
    lines = []
    largest = place = ""
    for number, corner in enumerate(corners):
        ranges = ", ".join(
            f"[{start}:{size}:{step}]"
            for start, size, step in zip(corner, values.shape.dimensions, sizes, strict=True)
        )
        lines += [
            f"corner.{number} = {part} slice(%p0), slice={{{ranges}}}",
            f"number.{number} = s32[] constant({number})",
            f"numbers.{number} = {numbers} broadcast(number.{number}), dimensions={{}}",
        ]
        if not number:
            largest, place = "corner.0", "numbers.0"
            continue
        name = "place" if number == len(corners) - 1 else f"place.{number}"
        lines += [
            f"kept.{number} = {mask} compare({largest}, corner.{number}), direction=GE",
            f"largest.{number} = {part} select(kept.{number}, {largest}, corner.{number})",
            f"{name} = {numbers} select(kept.{number}, {place}, numbers.{number})",
        ]
        largest, place = f"largest.{number}", name
    return "\n".join(lines)
