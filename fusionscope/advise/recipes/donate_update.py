"""A result that is an argument with a part overwritten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.aliasing import read_aliasing
from fusionscope.graph.mutable import MutableInstruction, MutableModule

_UPDATES = frozenset({"dynamic-update-slice", "scatter"})
_KEY = "input_output_alias"
_DONOR = re.compile(r"\((\d+), \{\}\)")


class DonateUpdate(Recipe):
    __slots__ = ()
    id: ClassVar = "donate-update"
    title: ClassVar = "an argument that is updated is donated (`donate_argnums`)"
    what: ClassVar = (
        "A result is one of the arguments with a part overwritten: a cache of keys and values, a "
        "buffer of samples. The argument is donated: the result takes its place in memory."
    )
    why: ClassVar = (
        "The caller keeps its argument, so the compiler copies all of it before the update. If "
        "it is donated, only the part is written."
    )
    backfires: ClassVar = (
        "The caller can no longer use the array that it passed in: JAX raises an error if it does."
    )
    backends: ClassVar = frozenset({"cpu", "gpu"})
    example: ClassVar = Example(
        ("f32[8,2048,128]", "f32[8,1,128]", "s32[1]"),
        """
def program(cache, keys, position):
    return lax.dynamic_update_slice(cache, keys, (0, position[0], 0))
""",
        """
def update(cache, keys, position):
    return lax.dynamic_update_slice(cache, keys, (0, position[0], 0))


program = jax.jit(update, donate_argnums=0)
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        root = graph.entry.root
        attributes = graph.source.attributes
        aliased = {slot for slot, _, _ in read_aliasing(attributes.get(_KEY, ""))}
        donated = {int(number) for number in _DONOR.findall(attributes.get("buffer_donor", ""))}
        unavailable = aliased | donated
        results = enumerate(root.operands) if root.opcode == "tuple" else [(None, root)]
        for index, result in results:
            parameter = _updated(result)
            if parameter is not None and parameter.parameter_number not in unavailable:
                unavailable.add(parameter.parameter_number)
                yield Site(result, partial(_donate, graph, index, parameter.parameter_number))


def _updated(result: MutableInstruction) -> MutableInstruction | None:
    """Return the parameter that ``result`` is an update of."""
    value = result
    while value.opcode in _UPDATES:
        value = value.operands[0]
    if value is result or value.opcode != "parameter":
        return None
    return value if value.shape.compatible(result.shape) else None


def _donate(graph: MutableModule, index: int | None, number: int) -> None:
    output = "{}" if index is None else f"{{{index}}}"
    alias = f"{output}: ({number}, {{}}, may-alias)"
    header = graph.source.header
    if f"{_KEY}={{ " in header:
        header = header.replace(f"{_KEY}={{ ", f"{_KEY}={{ {alias}, ", 1)
    else:
        header = f", {_KEY}={{ {alias} }}{header}"
    graph.source = replace(graph.source, header=header)
