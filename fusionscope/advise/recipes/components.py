"""Values with few components along a dimension, such as the coordinates of points, and the value of
each component.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

from fusionscope.advise.recipes.patterns import combiner, integers, is_neutral
from fusionscope.advise.recipes.vectorizing import ELEMENTWISE, with_attributes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.shape import Shape

_T = TypeVar("_T")
_ELEMENTWISE = (ELEMENTWISE - {"fft"}) | {"copy"}


@dataclass(frozen=True, slots=True)
class Form:
    """How an instruction computes one component: ``places`` are the dimensions of components of its
    operands, None for an operand that all components share, ``text`` are its attributes.
    """

    places: tuple[int | None, ...]
    text: str


def form_of(instruction: MutableInstruction, place: int) -> Form | None:
    """Return how ``instruction`` computes a component of its result, whose components are along
    dimension ``place``; None if it mixes them, or is not known not to.
    """
    shape = instruction.shape
    if not shape.is_array or None in shape.dimensions or "sharding" in instruction.attributes:
        return None
    if instruction.opcode in _ELEMENTWISE:
        return _elementwise(instruction, place)
    rule = _RULES.get(instruction.opcode)
    return rule(instruction, place) if rule is not None else None


def place_in(user: MutableInstruction, slot: int, place: int) -> int | None:
    """Return the dimension of the components in the result of ``user``, which reads them along
    dimension ``place`` of the operand in ``slot``; None if it mixes them.
    """
    if not user.shape.is_array:
        return None
    size = user.operands[slot].shape.dimensions[place]
    for result, length in enumerate(user.shape.dimensions):
        form = form_of(user, result) if length == size else None
        if form is not None and form.places[slot] == place:
            return result
    return None


def sums_components(user: MutableInstruction, slot: int, place: int) -> bool:
    """Return whether ``user`` is a reduction over the components."""
    return (
        user.opcode == "reduce"
        and slot == 0
        and len(user.operands) == 2
        and place in user.attribute("dimensions")
        and combiner(user) in ("add", "and", "multiply", "or")
        and is_neutral(user)
    )


def takes_component(user: MutableInstruction, place: int) -> bool:
    """Return whether ``user`` is a slice of one component."""
    return user.opcode == "slice" and user.shape.dimensions[place] == 1


def first_of(cut: MutableInstruction, place: int) -> int:
    """Return where a slice begins along a dimension."""
    return int(_bounds(cut)[place].strip("[]").partition(":")[0])


def without(items: Sequence[_T], place: int) -> tuple[_T, ...]:
    return (*items[:place], *items[place + 1 :])


def component_shape(shape: Shape, place: int) -> Shape:
    return Shape(shape.element_type, without(shape.dimensions, place))


def slice_without(user: MutableInstruction, place: int) -> str:
    """Return the attributes of a slice of a component, which ``user`` is of all of them."""
    text = f"{{{', '.join(without(_bounds(user), place))}}}"
    return re.sub(r", slice=\{[^{}]*\}", f", slice={text}", user.attributes_text)


def reduce_without(user: MutableInstruction, place: int) -> str | None:
    """Return the attributes of a reduction of a component, None if nothing is left to reduce."""
    dimensions = _shifted(user.attribute("dimensions"), place)
    return with_attributes(user, {"dimensions": integers(dimensions)}) if dimensions else None


def _shifted(dimensions: Iterable[int], place: int) -> list[int]:
    """Return the numbers of ``dimensions`` where ``place`` is none."""
    return [number - (number > place) for number in dimensions if number != place]


def _bounds(cut: MutableInstruction) -> list[str]:
    return re.findall(r"\[[^\]]*\]", cut.attributes["slice"])


def _elementwise(instruction: MutableInstruction, place: int) -> Form | None:
    dimensions = instruction.shape.dimensions
    if any(operand.shape.dimensions not in ((), dimensions) for operand in instruction.operands):
        return None
    places = (place if operand.shape.dimensions else None for operand in instruction.operands)
    return Form(tuple(places), instruction.attributes_text)


def _broadcast(instruction: MutableInstruction, place: int) -> Form:
    dimensions = list(instruction.attribute("dimensions") or ())
    text = with_attributes(instruction, {"dimensions": integers(_shifted(dimensions, place))})
    return Form((dimensions.index(place) if place in dimensions else None,), text)


def _reshape(instruction: MutableInstruction, place: int) -> Form | None:
    result, operand = instruction.shape.dimensions, instruction.operands[0].shape.dimensions
    if None in operand:
        return None
    before = prod(size or 1 for size in result[:place])
    for number, size in enumerate(operand):
        is_before = prod(length or 1 for length in operand[:number]) == before
        if size == result[place] and is_before:
            return Form((number,), instruction.attributes_text)
    return None


def _transpose(instruction: MutableInstruction, place: int) -> Form:
    order = instruction.attribute("dimensions")
    dimensions = integers(_shifted(order, order[place]))
    return Form((order[place],), with_attributes(instruction, {"dimensions": dimensions}))


def _over_dimensions(instruction: MutableInstruction, place: int) -> Form | None:
    """Concatenations and reversals."""
    dimensions = instruction.attribute("dimensions")
    if place in dimensions:
        return None
    text = with_attributes(instruction, {"dimensions": integers(_shifted(dimensions, place))})
    return Form((place,) * len(instruction.operands), text)


def _slice(instruction: MutableInstruction, place: int) -> Form | None:
    size = instruction.operands[0].shape.dimensions[place]
    if instruction.shape.dimensions[place] != size or instruction.shape.rank == 1:
        return None
    return Form((place,), slice_without(instruction, place))


def _pad(instruction: MutableInstruction, place: int) -> Form | None:
    padding = instruction.attributes["padding"].split("x")
    if any(int(number) for number in padding[place].split("_")):
        return None
    text = with_attributes(instruction, {"padding": "x".join(without(padding, place))})
    return Form((place, None), text) if len(padding) > 1 else None


def _reduce(instruction: MutableInstruction, place: int) -> Form | None:
    if len(instruction.operands) != 2:
        return None
    dimensions = instruction.attribute("dimensions")
    rank = instruction.operands[0].shape.rank
    remaining = [number for number in range(rank) if number not in dimensions]
    text = with_attributes(
        instruction, {"dimensions": integers(_shifted(dimensions, remaining[place]))}
    )
    return Form((remaining[place], None), text)


def _gather(instruction: MutableInstruction, place: int) -> Form | None:
    offsets = list(instruction.attribute("offset_dims") or ())
    collapsed = list(instruction.attribute("collapsed_slice_dims") or ())
    addressed = list(instruction.attribute("start_index_map") or ())
    operand = instruction.operands[0].shape
    if place not in offsets or "operand_batching_dims" in instruction.attributes:
        return None
    windows = [number for number in range(operand.rank) if number not in collapsed]
    read = windows[offsets.index(place)]
    sizes = list(instruction.attribute("slice_sizes"))
    if read in addressed or sizes[read] != operand.dimensions[read]:
        return None
    values = {
        "offset_dims": integers(_shifted(offsets, place)),
        "collapsed_slice_dims": integers(_shifted(collapsed, read)),
        "start_index_map": integers(_shifted(addressed, read)),
        "slice_sizes": integers(without(sizes, read)),
    }
    return Form((read, None), with_attributes(instruction, values))


def _scatter(instruction: MutableInstruction, place: int) -> Form | None:
    if len(instruction.operands) != 3 or "input_batching_dims" in instruction.attributes:
        return None
    windows = list(instruction.attribute("update_window_dims") or ())
    inserted = list(instruction.attribute("inserted_window_dims") or ())
    addressed = list(instruction.attribute("scatter_dims_to_operand_dims") or ())
    operand, _, updates = (source.shape for source in instruction.operands)
    if place in inserted or place in addressed:
        return None
    remaining = [number for number in range(operand.rank) if number not in inserted]
    window = windows[remaining.index(place)]
    if updates.dimensions[window] != operand.dimensions[place]:
        return None
    values = {
        "update_window_dims": integers(_shifted(windows, window)),
        "inserted_window_dims": integers(_shifted(inserted, place)),
        "scatter_dims_to_operand_dims": integers(_shifted(addressed, place)),
    }
    return Form((place, None, window), with_attributes(instruction, values))


_RULES: dict[str, Callable[[MutableInstruction, int], Form | None]] = {
    "broadcast": _broadcast,
    "concatenate": _over_dimensions,
    "gather": _gather,
    "pad": _pad,
    "reduce": _reduce,
    "reshape": _reshape,
    "reverse": _over_dimensions,
    "scatter": _scatter,
    "slice": _slice,
    "transpose": _transpose,
}
