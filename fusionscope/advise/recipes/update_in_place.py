"""One row of an array replaced by a selection over all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import ClassVar, NamedTuple

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import array, integers, put, text_of
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.aliasing import read_aliasing
from fusionscope.graph.mutable import MutableInstruction, MutableModule

_DONOR = re.compile(r"\((\d+), \{\}\)")


class UpdateInPlace(Recipe):
    __slots__ = ()
    id: ClassVar = "update-in-place"
    title: ClassVar = "`dynamic_update_slice` instead of a `where` over the whole array"
    what: ClassVar = (
        "A selection takes new values where the position along one dimension equals an index, and "
        "the old values of a donated argument, or of a loop-carried array, everywhere else. The "
        "new values are written into the old ones by `dynamic_update_slice`."
    )
    why: ClassVar = "The selection reads and writes the whole array, the update one row of it."
    backfires: ClassVar = (
        "If something else needs the old values, all of them are copied first. An index out of "
        "bounds is clamped by `dynamic_update_slice`, while the selection takes no new value; the "
        "rewrite of the recipe behaves like the selection."
    )
    backends: ClassVar = frozenset({"cpu", "gpu"})
    example: ClassVar = Example(
        ("f32[8,2048,128]", "f32[8,1,128]", "s32[1]"),
        """
def write(cache, keys, position):
    is_here = jnp.arange(cache.shape[1]) == position[0]
    return jnp.where(is_here[None, :, None], keys, cache)


program = jax.jit(write, donate_argnums=0)
""",
        """
def write(cache, keys, position):
    return lax.dynamic_update_slice(cache, keys, (0, position[0], 0))


program = jax.jit(write, donate_argnums=0)
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        overwritten = _overwritten(graph)
        for instruction in list(graph.walk()):
            if instruction.opcode == "select" and instruction.operands[2] in overwritten:
                place = _place(instruction)
                if place is not None:
                    yield Site(instruction, partial(_rewrite, instruction, place))


class _Place(NamedTuple):
    """``row`` is a scalar index along ``dimension``."""

    dimension: int
    row: MutableInstruction


def _overwritten(graph: MutableModule) -> set[MutableInstruction]:
    """Return values that one operation reads and whose memory is free afterwards: donated
    arguments, and values that loops carry.
    """
    attributes = graph.source.attributes
    donated = {slot for slot, _, _ in read_aliasing(attributes.get("input_output_alias", ""))}
    donated |= {
        int(overwritable) for overwritable in _DONOR.findall(attributes.get("buffer_donor", ""))
    }
    overwritable = {
        parameter for parameter in graph.entry.parameters if parameter.parameter_number in donated
    }
    for loop in graph.walk():
        if loop.opcode == "while":
            name = loop.attributes["body"].lstrip("%")
            (body,) = (value for value in loop.called if value.name == name)
            overwritable |= {
                instruction for instruction in body.instructions if _is_element(instruction)
            }
    return {value for value in overwritable if len(value.users) == 1}


def _is_element(value: MutableInstruction) -> bool:
    return value.opcode == "get-tuple-element" and value.operands[0].opcode == "parameter"


def _place(select: MutableInstruction) -> _Place | None:
    """Return where the selection takes one row of new values, which are the same for all rows."""
    mask, new, _ = select.operands
    chain = [mask]
    while chain[-1].opcode in ("broadcast", "reshape"):
        chain.append(chain[-1].operands[0])
    compare = chain.pop()
    is_equal = compare.opcode == "compare" and compare.attributes.get("direction") == "EQ"
    if not is_equal or compare.shape.rank != 1 or compare.shape.dimensions == (1,):
        return None
    dimension = 0
    for step in reversed(chain):
        if step.opcode == "broadcast":
            dimension = step.attribute("dimensions")[dimension]
        elif [size for size in step.shape.dimensions if size != 1] != [*compare.shape.dimensions]:
            return None
        else:
            dimension = step.shape.dimensions.index(compare.shape.dimensions[0])
    positions, index = compare.operands
    if positions.opcode != "iota":
        positions, index = index, positions
    if (
        positions.opcode != "iota"
        or index.opcode != "broadcast"
        or index.operands[0].shape.rank != 0
        or new.opcode != "broadcast"
        or dimension in new.attribute("dimensions")
    ):
        return None
    return _Place(dimension, index.operands[0])


def _rewrite(select: MutableInstruction, place: _Place) -> None:
    _, new, old = select.operands
    sizes = [size or 1 for size in old.shape.dimensions]
    last = sizes[place.dimension] - 1
    sizes[place.dimension] = 1
    row, mask = array(old.shape.element_type, sizes), array("pred", sizes)
    kind = place.row.shape.element_type
    starts = ", ".join(
        "index" if dimension == place.dimension else "zero" for dimension in range(len(sizes))
    )
    dimensions = new.attributes["dimensions"]
    put(
        select,
        f"""
        zero = {kind}[] constant(0)
        last = {kind}[] constant({last})
        index = {kind}[] clamp(zero, %p1, last)
        is_inside = pred[] compare(index, %p1), direction=EQ
        old = {row} dynamic-slice(%p2, {starts}), dynamic_slice_sizes={integers(sizes)}
        new = {row} broadcast(%p0), dimensions={dimensions}
        are_inside = {mask} broadcast(is_inside), dimensions={{}}
        row = {row} select(are_inside, new, old)
        ROOT result = {text_of(old)} dynamic-update-slice(%p2, row, {starts})
        """,
        [new.operands[0], place.row, old],
    )
