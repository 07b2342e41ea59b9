"""Determines which part of an operand is read for a part of a result.

A region is a box of elements if all operations in between preserve boxes, and otherwise a number of
elements in unknown places. Numbers are upper bounds: every element that is read is included.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeAlias

from fusionscope.grouping import Numbers
from fusionscope.hlo import Instruction, Shape
from fusionscope.hlo.attributes import read_slice
from fusionscope.hlo.opcodes import BINARY, UNARY

_MOST_REGIONS = 16  # regions of one value that are distinguished
_SAME_PLACES = UNARY | BINARY | {"clamp", "map", "select"}
# A part of the result takes a part of each operand.
_PARTS_OF_ALL = _SAME_PLACES | {"concatenate", "reduce"}
_SAME_IN_FIRST = frozenset({"get-tuple-element", "scatter"})
# They may ignore a part of their first operand.
_PARTS = frozenset({"dynamic-slice", "dynamic-update-slice", "gather", "pad", "slice"})


class Interval(NamedTuple):
    """``size`` indices of one dimension, from ``start`` on, every ``stride``-th.

    ``offset`` is the number of a run-time value that is added to them, or None.
    """

    start: int
    size: int
    stride: int = 1
    offset: int | None = None

    @property
    def end(self) -> int:
        """The last index plus one, without the offset."""
        return self.start + (self.size - 1) * self.stride + 1


Box: TypeAlias = "tuple[Interval, ...]"


class Region(NamedTuple):
    """``elements`` of an array: those of ``box``, or in unknown places if ``box`` is
    None.

    ``name`` identifies the latter: regions with the same name are the same elements.
    """

    elements: int
    box: Box | None
    name: int | None = None


class ReadStep(NamedTuple):
    """An operation that reads ``operand``, its operand ``slot``, which begins at ``begin`` in a
    concatenation. ``place`` identifies the value of another operand: a number if it is known.
    """

    instruction: Instruction
    slot: int
    operand: Shape
    begin: int
    place: Callable[[int], Hashable]
    names: Numbers

    def scattered(self, elements: int, region: Region) -> Region:
        """Return the elements that are read for ``region``, in unknown places."""
        what = region.box if region.name is None else region.name
        return Region(elements, None, self.names[self.instruction, self.slot, what])


def sizes(shape: Shape) -> tuple[int, ...]:
    """Return the elements per dimension: upper bounds if dynamic, 1 if unbounded. For a tuple,
    return those of its first array: all results of one operation are alike.
    """
    return tuple(1 if size is None else size for size in _array(shape).dimensions)


def whole(shape: Shape) -> Region:
    return _whole(_array(shape).dimensions)


def _array(shape: Shape) -> Shape:
    while shape.elements:
        shape = shape.elements[0]
    return shape


@lru_cache(maxsize=4096)
def _whole(dimensions: tuple[int | None, ...]) -> Region:
    return _boxed(Interval(0, 1 if size is None else size) for size in dimensions)


def union(regions: Sequence[Region], shape: Shape, names: Numbers) -> tuple[Region, ...]:
    """Return the same elements in few regions, none of them contained in another."""
    if not regions:
        return ()
    everything = whole(shape)
    for region in regions:
        if region.elements and region.elements >= everything.elements:
            return (everything,)
    nonempty = list(dict.fromkeys(region for region in regions if region.elements))
    hull, total = _hull(nonempty), sum(region.elements for region in nonempty)
    if len(nonempty) > _MOST_REGIONS:
        loose = Region(min(total, everything.elements), None, names[tuple(nonempty)])
        return (loose if hull is None or hull.elements > total else hull,)
    return tuple(
        region
        for region in nonempty
        if not any(_holds(second, region) for second in nonempty if second != region)
    )


def count_elements(regions: Sequence[Region], shape: Shape) -> int:
    """Return an upper bound for the number of elements in a union of regions."""
    if len(regions) == 1:
        return min(regions[0].elements, whole(shape).elements)
    hull = _hull(regions)
    bounds = [whole(shape).elements, sum(region.elements for region in regions)]
    return min(bounds if hull is None else [*bounds, hull.elements])


def read_for(
    regions: Sequence[Region],
    instruction: Instruction,
    place: Callable[[int], Hashable],
    names: Numbers,
) -> Iterator[list[Region]]:
    """Yield for each operand the parts that an operation reads for regions of its result."""
    everything = whole(instruction.shape)
    if instruction.opcode not in _PARTS and all(
        region.elements >= everything.elements for region in regions
    ):
        for operand in instruction.operands:
            yield [whole(operand.shape)] * len(regions)
        return
    begin = 0
    for slot, operand in enumerate(instruction.operands):
        step = ReadStep(instruction, slot, operand.shape, begin, place, names)
        yield [_read(region, step) for region in regions]
        if instruction.opcode == "concatenate":
            begin += sizes(operand.shape)[_dimensions(step)[0]]


def _read(region: Region, step: ReadStep) -> Region:
    opcode, slot = step.instruction.opcode, step.slot
    result, everything = whole(step.instruction.shape), whole(step.operand)
    is_part = opcode in _PARTS or region.elements < result.elements
    if not is_part or (slot and opcode not in _PARTS_OF_ALL):
        elements_read = everything
    elif opcode in _SAME_PLACES or opcode in _SAME_IN_FIRST:
        is_same = sizes(step.operand) == sizes(step.instruction.shape)
        elements_read = region if is_same else everything
    elif opcode == "gather":
        elements_read = step.scattered(region.elements, region)
    elif opcode == "dynamic-update-slice":
        untouched = everything.elements - step.instruction.operands[1].shape.element_count
        elements_read = (
            region if region.elements < result.elements else step.scattered(untouched, region)
        )
    elif opcode in _STEPS:
        elements_read = (_scattered if region.box is None else _STEPS[opcode])(step, region)
    else:
        elements_read = everything
    return elements_read if elements_read.elements < everything.elements else everything


def _scattered(step: ReadStep, region: Region) -> Region:
    """Return the region read for one that is not a box: as many elements, or for a reduction all
    that reduce to them.
    """
    factor = 1
    if step.instruction.opcode == "reduce":
        factor = max(step.operand.element_count // prod(sizes(step.instruction.shape)), 1)
    elif step.operand.bits != step.instruction.shape.bits:  # a bitcast to another type
        bits = step.instruction.shape.bits * region.elements
        return step.scattered(-(-bits // max(step.operand.bits, 1)), region)
    return step.scattered(region.elements * factor, region)


def _transpose(step: ReadStep, region: Region) -> Region:
    box, order = region.box or (), _dimensions(step)
    return _boxed(box[order.index(number)] for number in range(len(order)))


def _broadcast(step: ReadStep, region: Region) -> Region:
    box = region.box or ()
    return _boxed(box[number] for number in _dimensions(step))


def _reduce(step: ReadStep, region: Region) -> Region:
    if step.slot >= len(step.instruction.operands) // 2:
        return whole(step.operand)
    intervals, reduced = iter(region.box or ()), _dimensions(step)
    return _boxed(
        Interval(0, size) if number in reduced else next(intervals)
        for number, size in enumerate(sizes(step.operand))
    )


def _reverse(step: ReadStep, region: Region) -> Region:
    box, extents, turned = region.box or (), sizes(step.operand), _dimensions(step)
    if any(box[number].offset is not None for number in turned):
        return _scattered(step, region)
    return _boxed(
        part._replace(start=extents[number] - part.end) if number in turned else part
        for number, part in enumerate(box)
    )


def _slice(step: ReadStep, region: Region) -> Region:
    parts: list[Interval] = []
    cuts = read_slice(step.instruction.attributes["slice"])
    for part, cut in zip(region.box or (), cuts, strict=True):
        offset = part.offset
        if offset is not None and cut.step > 1:
            offset = step.names[offset, cut.step]
        start = cut.start + part.start * cut.step
        parts.append(Interval(start, part.size, part.stride * cut.step, offset))
    return _boxed(parts)


def _dynamic_slice(step: ReadStep, region: Region) -> Region:
    extents, cut = sizes(step.operand), sizes(step.instruction.shape)
    if len(step.instruction.operands) != len(extents) + 1:  # older texts: all places in one operand
        return _scattered(step, region)
    parts: list[Interval] = []
    for number, part in enumerate(region.box or ()):
        place, last = step.place(number + 1), extents[number] - cut[number]
        if not last:
            parts.append(part)
        elif isinstance(place, int):
            parts.append(part._replace(start=part.start + min(max(place, 0), last)))
        else:  # clamped, so slices of other sizes may begin elsewhere
            parts.append(part._replace(offset=step.names[place, last, part.offset]))
    return _boxed(parts)


def _concatenate(step: ReadStep, region: Region) -> Region:
    return _cut(step, region, {_dimensions(step)[0]: step.begin})


def _pad(step: ReadStep, region: Region) -> Region:
    lows: dict[int, int] = {}
    for number, text in enumerate(step.instruction.attributes["padding"].split("x")):
        low, _, *interior = map(int, text.split("_"))
        if any(interior):
            return _scattered(step, region)
        lows[number] = low
    return _cut(step, region, lows)


def _cut(step: ReadStep, region: Region, lows: dict[int, int]) -> Region:
    """Return the part of a region that belongs to an operand whose elements begin at ``lows``."""
    parts: list[Interval] = []
    for number, (part, size) in enumerate(zip(region.box or (), sizes(step.operand), strict=True)):
        if number not in lows:
            parts.append(part)
        elif part.offset is not None:
            return _scattered(step, region)
        else:
            start, end = part.start - lows[number], part.end - lows[number]
            start = start if start >= 0 else start % part.stride
            inside = range(start, min(end, size), part.stride)
            if not inside:
                return Region(0, None)
            parts.append(Interval(start, len(inside), part.stride))
    return _boxed(parts)


def _reshaped(step: ReadStep, region: Region) -> Region:
    """Return the same elements by their places in the operand of a reshape or bitcast."""
    shapes = step.instruction.shape, step.operand
    if shapes[0].bits != shapes[1].bits:
        return _scattered(step, region)
    orders: list[Sequence[int]] = []  # major to minor
    for shape in shapes:
        order: Sequence[int] = range(shape.rank)
        if step.instruction.opcode == "bitcast" and shape.layout:
            if shape.layout.tiles:
                return _scattered(step, region)
            order = shape.layout.minor_to_major[::-1]
        orders.append(order)
    new, old = ([sizes(s)[n] for n in order] for s, order in zip(shapes, orders, strict=True))
    parts = _regrouped([(region.box or ())[n] for n in orders[0]], new, old, step.names)
    if parts is None:
        return _scattered(step, region)
    by_number = dict(zip(orders[1], parts, strict=True))
    return _boxed(by_number[number] for number in range(len(by_number)))


def _regrouped(
    box: Sequence[Interval], new: Sequence[int], old: Sequence[int], names: Numbers
) -> Box | None:
    """Return a box of an array of sizes ``new``, major to minor, for the same elements in sizes
    ``old``.

    Return None if they are not known to form a box there.
    """
    if prod(new) != prod(old) or not prod(new):
        return None
    parts: list[Interval] = []
    at = 0
    while len(parts) < len(old) or at < len(new):
        # The next dimensions of both that hold the same number of elements.
        first, begin = len(parts), at
        last, end = first + (first < len(old)), begin + (begin < len(new))
        while (sides := (prod(old[first:last]), prod(new[begin:end])))[0] != sides[1]:
            if sides[0] < sides[1]:
                last += 1
            else:
                end += 1
        moved = _moved(box[begin:end], new[begin:end], old[first:last], names)
        if moved is None:
            return None
        parts += moved
        at = end
    return tuple(parts)


def _moved(
    box: Sequence[Interval], new: Sequence[int], old: Sequence[int], names: Numbers
) -> Box | None:
    """Do the work of ``_regrouped`` for dimensions that do not split into smaller groups."""
    if all(part.size == size for part, size in zip(box, new, strict=True)):
        return tuple(Interval(0, size) for size in old)
    nontrivial = [(part, size) for part, size in zip(box, new, strict=True) if size != 1]
    if len(nontrivial) == 1 and [size for size in old if size != 1] == [nontrivial[0][1]]:
        return tuple(Interval(0, 1) if size == 1 else nontrivial[0][0] for size in old)
    run = _flattened(box, new, names)
    if run is None or len(old) == 1:
        return None if run is None else (run,)
    return _unflattened(run, old)


def _flattened(box: Sequence[Interval], new: Sequence[int], names: Numbers) -> Interval | None:
    """Return the elements of ``box`` as one interval if they are contiguous: single indices, then
    one interval, then whole dimensions.
    """
    start, length = 0, 1
    offset: int | None = None
    for part, size in zip(box, new, strict=True):
        if (length > 1 and part.size != size) or (part.size > 1 and part.stride != 1):
            return None
        start, length = start * size + part.start, length * part.size
        if offset is not None or part.offset is not None:
            offset = names[offset, size, part.offset]
    return Interval(start, length, offset=offset)


def _unflattened(run: Interval, old: Sequence[int]) -> Box | None:
    """Return the elements of ``run`` as a box in an array of the sizes ``old``."""
    if run.offset is not None:
        return None
    start, length = run.start, run.size
    parts: list[Interval] = []
    step = prod(old)
    for size in old:
        step //= size
        first, end = start // step, -(-(start + length) // step)
        if end - first > 1 and (start % step or length % step):
            return None
        parts.append(Interval(first, end - first))
        start, length = (start - first * step, length) if end - first == 1 else (0, step)
    return tuple(parts)


def _boxed(parts: Iterable[Interval]) -> Region:
    box = tuple(parts)
    return Region(prod(part.size for part in box), box)


def _holds(outer: Region, inner: Region) -> bool:
    if outer.box is None or inner.box is None:
        return False
    return all(
        whole.offset == part.offset
        and whole.start <= part.start
        and part.end <= whole.end
        and (whole.stride == 1 or whole.stride == part.stride)
        and (part.start - whole.start) % whole.stride == 0
        for whole, part in zip(outer.box, inner.box, strict=True)
    )


def _hull(regions: Sequence[Region]) -> Region | None:
    """Return the smallest box around all regions, None without boxes in known places."""
    boxes = [region.box for region in regions if region.box is not None]
    if not boxes or len(boxes) < len(regions):
        return None
    parts: list[Interval] = []
    for places in zip(*boxes, strict=True):
        if len({place.offset for place in places}) > 1:
            return None
        start, end = min(p.start for p in places), max(p.end for p in places)
        parts.append(Interval(start, end - start, offset=places[0].offset))
    return _boxed(parts)


def _dimensions(step: ReadStep) -> tuple[int, ...]:
    dimensions: tuple[int, ...] = step.instruction.attribute("dimensions")
    return dimensions


_STEPS: dict[str, Callable[[ReadStep, Region], Region]] = {
    "bitcast": _reshaped,
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "dynamic-slice": _dynamic_slice,
    "pad": _pad,
    "reduce": _reduce,
    "reshape": _reshaped,
    "reverse": _reverse,
    "slice": _slice,
    "transpose": _transpose,
}
