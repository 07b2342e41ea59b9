"""Tracks the order in memory of a dot's dimensions, through its operands and users.

Source: xla/service/gpu/triton_tiling_propagation.cc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from typing import NamedTuple, TypeAlias

from fusionscope.graph.layouts import minor_to_major, reshape_is_bitcast, sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.shape import Shape

NO_SPLIT = 1
"""Where a dimension is in one piece, that many pieces."""

_CONCATENATE_MULTIPLE = 64
_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
_FLOAT_OPERATIONS = frozenset(
    """acos acosh asin asinh atanh cbrt ceil cosine cosh erf exponential exponential-minus-one floor
    log log-plus-one round-nearest-even rsqrt sine sinh sqrt tan tanh atan2 power""".split()
)
_OPERATIONS = frozenset(
    "abs add clamp compare convert maximum minimum multiply negate select subtract".split()
)
_TRUTH_OPERATIONS = frozenset("and clamp compare convert not or select xor".split())


@dataclass(frozen=True, slots=True)
class Fragment:
    """``count`` elements of one dimension of the dot, of which only ``used`` from ``start`` on are
    read. ``start`` is negative in a part of a concatenation.
    """

    dimension: int
    count: int
    start: int
    used: int

    @staticmethod
    def whole(dimension: int, count: int) -> Fragment:
        return Fragment(dimension, count, 0, count)

    @property
    def is_sliced(self) -> bool:
        return self.count != self.used


class Run(NamedTuple):
    """Adjacent elements of one dimension, made of dimensions of sizes ``parts``."""

    stride: int
    elements: int
    start: int
    used: int
    parts: tuple[int, ...]


Iteration: TypeAlias = tuple[tuple[int, tuple[Run, ...]], ...]
"""The runs of each dimension, by its number."""


@dataclass(frozen=True, slots=True)
class DimensionOrder:
    """``fragments`` of the dot's dimensions in the order of memory, the contiguous one first.
    ``places`` holds, for each dimension, its fragments.
    """

    fragments: tuple[Fragment, ...]
    places: Mapping[int, tuple[int, ...]]

    @staticmethod
    def of_dot(shape: Shape) -> DimensionOrder:
        """Return the order for an operand or result of the dot (FromDotOperandOrOutput)."""
        order = minor_to_major(shape)
        extents = sizes(shape)
        return DimensionOrder(
            tuple(Fragment.whole(dimension, extents[dimension]) for dimension in order),
            {dimension: (place,) for place, dimension in enumerate(order)},
        )

    def iteration(self) -> Iteration:
        """Source: ToTensorIterationSpec."""
        runs: dict[int, list[Run]] = {}
        stride = 1
        last = None
        for fragment in self.fragments:
            dimension_runs = runs.setdefault(fragment.dimension, [])
            if fragment.dimension == last:
                run = dimension_runs[-1]
                if run.parts and run.parts[-1] == 1:
                    run = run._replace(parts=run.parts[:-1])
                if fragment.count > 1:
                    run = Run(
                        run.stride,
                        run.elements * fragment.count,
                        fragment.start * run.elements,
                        fragment.used * run.elements,
                        (*run.parts, fragment.used),
                    )
                dimension_runs[-1] = run
            else:
                dimension_runs.append(
                    Run(stride, fragment.count, fragment.start, fragment.used, (fragment.used,))
                )
            stride *= fragment.count
            last = fragment.dimension
        return tuple(
            (dimension, tuple(long_runs))
            for dimension, dimension_runs in sorted(runs.items())
            if (
                long_runs := [run for run in dimension_runs if run.elements != 1]
                if len(dimension_runs) > 1
                else dimension_runs
            )
        )


@dataclass(frozen=True, slots=True)
class Following:
    """How a compiler version tracks dimensions.

    - ``dead_ends`` are users that stop the tracking of an instruction.
    - ``slices_in_memory``: a slice must come last in memory, rather than in the dimension.
    - ``reshapes_slices``: a slice passes through a bitcast.
    - ``moves_parts``: a part of a concatenation passes through any transpose.
    """

    dead_ends: frozenset[str] = frozenset({"dynamic-slice"})
    slices_in_memory: bool = True
    reshapes_slices: bool = True
    moves_parts: bool = False


FOLLOWING = Following()


@dataclass(frozen=True, slots=True)
class DotSide:
    """The constraints of an operand or the result of the dot: its dimension that is not contracted
    (-1 for the result), the dimension that may be split in two (-1 if none may), and the elements
    that are summed for one of the result.
    """

    free: int
    splittable: int
    following: Following
    summed: int


class Propagated(NamedTuple):
    """The orders of the operands, or of the instruction itself, and the number of elements in the
    larger piece of the split dimension.
    """

    orders: Mapping[MutableInstruction, DimensionOrder]
    split: int


def combine_splits(first: int, second: int) -> int | str:
    """Source: CombineSplitDimMajorPartSizeReqs."""
    if first == second or second == NO_SPLIT:
        return first
    return second if first == NO_SPLIT else "Conflicting splits of splittable dimension"


def propagate(
    instruction: MutableInstruction, order: DimensionOrder, side: DotSide, *, up: bool
) -> Propagated | str:
    """Propagate from the result to the operands if ``up``, else from an operand to the result.
    Return the compiler's message if that is impossible. Source:
    GetPropagatedDimOrdersAndRequirements.
    """
    orders = _orders(instruction, order, side, up=up)
    if isinstance(orders, str):
        return orders
    split = NO_SPLIT
    for operand in (*instruction.operands, instruction):
        if operand in orders:
            operand_split = _split(orders[operand], side)
            combined = (
                operand_split
                if isinstance(operand_split, str)
                else combine_splits(split, operand_split)
            )
            if isinstance(combined, str):
                return combined
            split = combined
    return Propagated(orders, split)


def _split(order: DimensionOrder, side: DotSide) -> int | str:
    """Source: GetRequirementsIfSupportedOrder, HasInvalidPhysicalSlice."""
    if side.following.slices_in_memory:
        for _, group in groupby(order.fragments, key=lambda fragment: fragment.dimension):
            if any(fragment.is_sliced for fragment in list(group)[:-1]):
                return "Sliced non-major-most fragment physically."
    elif any(
        order.fragments[place].is_sliced
        for places in order.places.values()
        for place in places[:-1]
    ):
        return "Sliced non-major-most fragment."
    split = NO_SPLIT
    for dimension, places in order.places.items():
        count, last = 0, -1
        for part in _parts(places):
            size = prod(order.fragments[place].count for place in part)
            if size == 1:
                continue
            if last > part[-1]:
                return "Transpose within a dimension."
            count += 1
            if count > 1:
                if dimension != side.splittable:
                    return "Unsupported split of a dimension."
                if count > 2:
                    return "2nd split of a splittable dimension."
                split = size
            last = part[-1]
    return split


def _parts(places: Sequence[int]) -> Iterator[list[int]]:
    """Yield the parts in which each number is one more than the previous."""
    run: list[int] = []
    for place in places:
        if run and place != run[-1] + 1:
            yield run
            run = []
        run.append(place)
    if run:
        yield run


def _orders(
    instruction: MutableInstruction, order: DimensionOrder, side: DotSide, *, up: bool
) -> dict[MutableInstruction, DimensionOrder] | str:
    """Source: GetPropagatedDimOrders."""
    opcode = instruction.opcode
    if (
        up
        and opcode != "parameter"
        and any(user.opcode in side.following.dead_ends for user in instruction.users)
    ):
        readers = "concatenations or " if "concatenate" in side.following.dead_ends else ""
        return f"No fusion into {readers}dynamic slice."
    if opcode == "parameter" or (opcode == "constant" and not instruction.shape.rank):
        return {}
    if opcode in ("transpose", "copy"):
        return _moved(instruction, order, side.following, up=up)
    if opcode == "broadcast":
        if not up:
            return "Unsupported broadcast direction."
        return _moved(instruction, order, side.following, up=up)
    if is_known_elementwise(instruction):
        return dict.fromkeys(instruction.operands if up else [instruction], order)
    if opcode == "bitcast":
        return _reinterpreted(instruction, order, side.following, up=up)
    if opcode == "slice" and not up:
        return "Unsupported slice direction."
    if opcode == "slice" or (opcode == "dynamic-slice" and up):
        return _moved(instruction, order, side.following, up=up)
    if opcode == "reshape":
        if not reshape_is_bitcast(instruction.operands[0].shape, instruction.shape):
            return "Non-bitcast reshape."
        return _reinterpreted(instruction, order, side.following, up=up)
    if opcode == "concatenate" and up:
        return _problem_of_concatenate(instruction, order, side) or _moved(
            instruction, order, side.following, up=up
        )
    return "Unimplemented instruction."


def is_known_elementwise(instruction: MutableInstruction) -> bool:
    """Source: xla/backends/gpu/codegen/triton/support_legacy.cc,
    IsTritonSupportedElementwiseUpToFloatNormalization."""
    if not instruction.operands:
        return False
    element_type = instruction.operands[0].shape.element_type
    if element_type == "pred":
        return instruction.opcode in _TRUTH_OPERATIONS
    return (
        instruction.opcode in _OPERATIONS
        or (element_type in _FLOATS and instruction.opcode in _FLOAT_OPERATIONS)
        or (instruction.opcode == "divide" and element_type in _FLOATS - {"f16"})
    )


def _problem_of_concatenate(
    concatenate: MutableInstruction, order: DimensionOrder, side: DotSide
) -> str | None:
    if len(order.places.get(side.free, ())) > 1:
        return "Concatenations on split non-contracting dimensions are unsupported."
    place: int = concatenate.attribute("dimensions")[0]
    if _dimension_of(concatenate.shape, order, side.free) != place:
        return "Unsupported concatenation."
    if any(sizes(operand.shape)[place] % _CONCATENATE_MULTIPLE for operand in concatenate.operands):
        return "At least one operand of concatenation can not be perfectly tiled."
    return None


def _dimension_of(shape: Shape, order: DimensionOrder, dimension: int) -> int | None:
    """Return the dimension of ``shape`` that holds the first fragment of a dimension of the dot.

    Source: LogicalIndexOfLabeledDimension.
    """
    fragments = iter(order.fragments)
    for place in minor_to_major(shape):
        size = 1
        while size < sizes(shape)[place]:
            fragment = next(fragments)
            size *= fragment.count
            if fragment.dimension == dimension:
                return place
    return None


def _reinterpreted(
    instruction: MutableInstruction, order: DimensionOrder, following: Following, *, up: bool
) -> dict[MutableInstruction, DimensionOrder] | str:
    """Source: GetPropagatedDimOrdersForBitcast."""
    target = instruction.operands[0] if up else instruction
    extents = iter(sizes(target.shape)[place] for place in minor_to_major(target.shape))
    fragments: list[Fragment] = []
    pieces: list[list[int]] = []
    remaining = 1  # of the dimension of the target that is being filled
    for source in order.fragments:
        parts: list[int] = []
        pieces.append(parts)
        if remaining >= source.count:
            if remaining % source.count:
                return "Unsupported bitcast"
            parts.append(len(fragments))
            fragments.append(source)
            remaining //= source.count
            continue
        if source.is_sliced and not following.reshapes_slices:
            return "Unsupported bitcast"
        size, minor = source.count, 1
        while size > 1:
            if remaining > 1:
                part, remaining = remaining, 1
                if size % part:
                    return "Unsupported bitcast"
            else:
                part = next(extents)
                if part > size:
                    if part % size:
                        return "Unsupported bitcast"
                    remaining, part = part // size, size
            if source.start % minor or source.used % minor:
                return "Unsupported bitcast split alignment"
            size //= part
            fragment = Fragment.whole(source.dimension, part)
            if size == 1:
                fragment = replace(fragment, start=source.start // minor, used=source.used // minor)
            parts.append(len(fragments))
            fragments.append(fragment)
            minor *= part
    left = [*extents]
    if remaining != 1 or any(extent != 1 for extent in left):
        return "Unsupported bitcast"
    for _ in left if fragments else ():
        pieces[-1].append(len(fragments))
        fragments.append(Fragment.whole(fragments[-1].dimension, 1))
    places = {
        dimension: tuple(part for place in old_places for part in pieces[place])
        for dimension, old_places in order.places.items()
    }
    return {target: DimensionOrder(tuple(fragments), places)}


_Group: TypeAlias = list[tuple[int | None, Fragment]]
"""Fragments with their places in the source, None for new ones."""


def _moved(
    instruction: MutableInstruction, order: DimensionOrder, following: Following, *, up: bool
) -> dict[MutableInstruction, DimensionOrder] | str:
    """Propagate through a copy, transpose, broadcast, slice, dynamic slice or concatenate.

    Source: GetPropagatedDimOrdersForDimAlteringOp.
    """
    source = instruction if up else instruction.operands[0]
    if instruction.opcode == "slice" and instruction.shape.element_count == 1:
        return "Slice to scalar is not implemented yet."
    if len(order.fragments) < source.shape.rank:
        return "Cannot propagate further from trivial sized tensor"
    groups = _groups(source.shape, order)
    if up and not following.moves_parts and _moves_part(instruction, groups):
        return "Transposing sliced concatenate dimension to non-major-most physical position."
    orders: dict[MutableInstruction, DimensionOrder] = {}
    for slot, target in enumerate(instruction.operands if up else [instruction]):
        if slot and instruction.opcode == "dynamic-slice":  # a start, which has no dimensions
            orders[target] = DimensionOrder((), {})
            continue
        moved = _moved_groups(instruction, groups, target, slot, up=up)
        if isinstance(moved, str):
            return moved
        fragments = [
            fragment_place
            for place in minor_to_major(target.shape)
            for fragment_place in moved[place]
        ]
        where = {place: new for new, (place, _) in enumerate(fragments) if place is not None}
        nontrivial = {fragment.dimension for _, fragment in fragments if fragment.count > 1}
        places: dict[int, tuple[int, ...]] = {}
        for dimension, old_places in order.places.items():
            if (
                instruction.opcode == "broadcast"
                and dimension in nontrivial
                and any(
                    order.fragments[fragment_place].count > 1
                    for fragment_place in old_places
                    if fragment_place not in where
                )
            ):
                return "Unsupported broadcast"
            alive = tuple(
                where[fragment_place] for fragment_place in old_places if fragment_place in where
            )
            if alive:
                places[dimension] = alive
        orders[target] = DimensionOrder(tuple(fragment for _, fragment in fragments), places)
    return orders


def _groups(shape: Shape, order: DimensionOrder) -> list[_Group]:
    """Return the fragments of each dimension of ``shape``."""
    groups: list[_Group] = [[] for _ in range(shape.rank)]
    fragments = enumerate(order.fragments)
    for place in minor_to_major(shape):
        size = 0
        while size < max(sizes(shape)[place], 1):
            number, fragment = next(fragments)
            groups[place].append((number, fragment))
            size = max(size, 1) * fragment.count
    return groups


def _moved_groups(
    instruction: MutableInstruction,
    groups: list[_Group],
    target: MutableInstruction,
    slot: int,
    *,
    up: bool,
) -> list[_Group] | str:
    opcode = instruction.opcode
    if opcode == "transpose":
        permutation: tuple[int, ...] = instruction.attribute("dimensions")
        if up:
            permutation = tuple(permutation.index(place) for place in range(len(permutation)))
        return [groups[place] for place in permutation]
    if opcode == "broadcast":
        return [groups[place] for place in instruction.attribute("dimensions")]
    if opcode == "concatenate":
        place: int = instruction.attribute("dimensions")[0]
        if len(groups[place]) != 1 or groups[place][0][1].is_sliced:
            return "Unsupported concatenation."
        extents = [sizes(operand.shape)[place] for operand in instruction.operands]
        fragment = Fragment(
            groups[place][0][1].dimension, extents[slot], -sum(extents[:slot]), extents[slot]
        )
        return [*groups[:place], [(None, fragment)], *groups[place + 1 :]]
    if opcode == "slice":
        return _sliced_groups(instruction, groups, target)
    if opcode == "dynamic-slice":
        return _dynamically_sliced_groups(instruction, groups, target)
    return groups


def _moves_part(instruction: MutableInstruction, groups: list[_Group]) -> bool:
    """Return whether it transposes a part of a concatenation that was not outermost."""
    if instruction.opcode != "transpose":
        return False
    permutation: tuple[int, ...] = instruction.attribute("dimensions")
    major = minor_to_major(instruction.operands[0].shape)[-1]
    return any(
        group and group[0][1].start < 0 and place != major
        for place, group in zip(permutation, groups, strict=True)
    )


def _sliced_groups(
    slice_: MutableInstruction, groups: list[_Group], target: MutableInstruction
) -> list[_Group] | str:
    moved: list[_Group] = []
    limits = [
        [int(number) for number in bounds.strip("[] ").split(":")]
        for bounds in slice_.attributes["slice"].strip("{}").split(",")
    ]
    for (start, end, *_), extent, group in zip(limits, sizes(target.shape), groups, strict=True):
        if end - start == extent:
            moved.append(group)
            continue
        if len(group) > 1:
            return "Slicing of fragmented dimension."
        number, fragment = group[0]
        moved.append([(number, replace(fragment, count=extent, start=fragment.start + start))])
    return moved


def _dynamically_sliced_groups(
    slice_: MutableInstruction, groups: list[_Group], target: MutableInstruction
) -> list[_Group] | str:
    """Return the fragments of the whole operand, since it is not known which part is read."""
    moved: list[_Group] = []
    for part, extent, group in zip(sizes(slice_.shape), sizes(target.shape), groups, strict=True):
        if part == extent:
            moved.append(group)
            continue
        if len(group) > 1:
            return "Slicing of fragmented dimension."
        number, fragment = group[0]
        moved.append([(number, replace(fragment, count=extent, used=extent))])
    return moved
