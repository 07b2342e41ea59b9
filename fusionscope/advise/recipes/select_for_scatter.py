"""A gather of a few elements per row, whose gradient is a scatter."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import (
    array,
    combiner,
    integers,
    is_zero,
    put,
    reducer,
    scalar,
    text_of,
)
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo.search import reachable


class SelectForScatter(Recipe):
    __slots__ = ()
    id: ClassVar = "select-for-scatter"
    title: ClassVar = "a comparison with the indices instead of a gather and its gradient"
    what: ClassVar = (
        "A gather takes an element of each row, such as the logarithm of the probability of the "
        "right class, or up to 64, such as `x[..., rows, columns]`. Its gradient is a scatter of "
        "them into each row of zeros. Both become a selection of the positions in the row that "
        "equal the indices, the gradient of several elements with a sum over these."
    )
    why: ClassVar = (
        "A scatter is a kernel of its own, which first needs a kernel that fills its result with "
        "zeros. A selection is elementwise: it is fused into the consumers of the gradient, and "
        "the zeros never go through memory."
    )
    backfires: ClassVar = (
        "The forward pass reads the whole row for each element. Without a gradient the "
        "gather is cheaper, and on a CPU the time of the example stays the same. An index that is "
        "negative or out of range selects zero, instead of an element from the end or NaN."
    )
    tolerance: ClassVar = 1e-6
    backends: ClassVar = frozenset({"gpu", "tpu"})
    example: ClassVar = Example(
        ("f32[512,256]", "f32[256,1024]", "s32[512]"),
        """
def program(inputs, weights, labels):
    def loss(weights):
        scores = jax.nn.log_softmax(inputs @ weights)
        return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()

    return jax.value_and_grad(loss)(weights)
""",
        """
def program(inputs, weights, labels):
    def loss(weights):
        scores = jax.nn.log_softmax(inputs @ weights)
        is_label = jnp.arange(scores.shape[1]) == labels[:, None]
        return -jnp.where(is_label, scores, 0).sum(axis=1).mean()

    return jax.value_and_grad(loss)(weights)
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        gathers: dict[_Rows | None, list[MutableInstruction]] = defaultdict(list)
        scatters = []
        for access in graph.walk():
            if access.opcode == "gather":
                gathers[_rows_of(access)].append(access)
            elif access.opcode == "scatter":
                scatters.append((access, _rows_of(access)))
        for scatter, rows in scatters:
            if rows is None or not _is_gradient(scatter, rows):
                continue
            indices = _unclamped(scatter.operands[1])
            # A loop and its gradient are two computations, whose indices are not the same value.
            readers = [gather for gather in gathers[rows] if gather.operands[1] is indices]
            for gather in readers or gathers[rows]:
                yield Site(gather, partial(_rewrite_gather, gather, rows))
            yield Site(scatter, partial(_rewrite_scatter, scatter, rows))


_MOST = 64  # elements of a row: all of the result is compared with each
# The attributes that say which dimensions are which: those of the window; those of the operand
# that it lacks; those that an index addresses; those that operand and indices share.
_DIMENSIONS = {
    "gather": (
        "offset_dims",
        "collapsed_slice_dims",
        "start_index_map",
        "operand_batching_dims",
        "start_indices_batching_dims",
    ),
    "scatter": (
        "update_window_dims",
        "inserted_window_dims",
        "scatter_dims_to_operand_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
    ),
}


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of an array of ``sizes``, of each of which a gather takes ``count`` elements, or to
    each of which a scatter adds them.

    A row lies along the dimensions ``indexed``. Rows have indices of their own along ``batches``,
    and the same ones along all others. Transposed by ``index_order``, the indices have the
    dimensions of the batches, then those of the elements of a row, last that of an index.
    Transposed by ``element_order``, the elements have all dimensions of the array that are not
    indexed, then those of the elements of a row, last those of size one.
    """

    sizes: tuple[int, ...]
    count: int
    indexed: tuple[int, ...]
    batches: tuple[int, ...]
    index_order: tuple[int, ...]
    element_order: tuple[int, ...]

    @property
    def comparisons(self) -> tuple[int, ...]:
        """The sizes of an array of all positions in rows, beside all elements of a row."""
        return (*self.sizes, self.count)

    @property
    def unindexed(self) -> tuple[int, ...]:
        """The dimensions along which no row lies."""
        return tuple(place for place in range(len(self.sizes)) if place not in self.indexed)

    def sizes_along(self, dimensions: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of an array of these dimensions, beside all elements of a row."""
        return (*(self.sizes[place] for place in dimensions), self.count)

    def spread(self, dimensions: Sequence[int]) -> str:
        """Return the dimensions of the comparisons that such an array has."""
        return integers((*dimensions, len(self.sizes)))


def _rows_of(access: MutableInstruction) -> _Rows | None:
    """Return the rows of a gather or a scatter of one array; None if its windows are larger along
    an indexed dimension, or smaller along another one.
    """
    operand, indices, *updates = (value.shape for value in access.operands)
    elements = updates[0] if updates else access.shape
    window, absent, indexed, batches, of_batches = (
        tuple(access.attribute(name) or ()) for name in _DIMENSIONS[access.opcode]
    )
    of_index = access.attribute("index_vector_dim")
    sizes = tuple(size or 0 for size in operand.dimensions)
    in_window = [place for place in range(operand.rank) if place not in (*absent, *batches)]
    numbers = [place for place in range(indices.rank) if place != of_index]
    outside = [place for place in range(elements.rank) if place not in window]
    is_consistent = (
        len(updates) <= 1
        and of_index in range(indices.rank)
        and (len(in_window), len(numbers)) == (len(window), len(outside))
        and len(batches) == len(of_batches)
        and None not in (*operand.dimensions, *indices.dimensions, *elements.dimensions)
    )
    if not is_consistent:
        return None
    places = dict(zip(in_window, window, strict=True))  # of the operand's dimensions, in elements
    is_row = all(
        elements.dimensions[places[place]] == (1 if place in indexed else sizes[place])
        for place in in_window
    )
    place_of = dict(zip(numbers, outside, strict=True))  # the same for those of the indices
    places |= {place: place_of[number] for place, number in zip(batches, of_batches, strict=True)}
    unindexed = [place for place in range(operand.rank) if place not in indexed]
    of_row = [number for number in numbers if number not in of_batches]
    count = math.prod(indices.dimensions[number] or 0 for number in of_row)
    if not is_row or not places.keys() >= {*unindexed} or not 0 < count <= _MOST:
        return None
    units = [places[place] for place in indexed if place in places]
    return _Rows(
        sizes,
        count,
        indexed,
        batches,
        (*of_batches, *of_row, of_index),
        (*(places[place] for place in unindexed), *(place_of[number] for number in of_row), *units),
    )


def _is_gradient(scatter: MutableInstruction, rows: _Rows) -> bool:
    """Return whether it adds to zeros; one element a row may as well be set."""
    combine = scatter.called[0]
    is_set = rows.count == 1 and combine.root is combine.parameters[-1]
    return (is_set or combiner(scatter) == "add") and is_zero(scatter.operands[0])


def _rewrite_scatter(scatter: MutableInstruction, rows: _Rows) -> None:
    zeros, indices, updates = scatter.operands
    kind = updates.shape.element_type
    all_pairs = array(kind, rows.comparisons)
    order, spread = integers(rows.element_order), rows.spread(rows.unindexed)
    over = integers([zeros.shape.rank])
    comparison, is_at = _compare(rows, indices, clamps=False)
    put(
        scatter,
        f"""
        {comparison}
        turned = {_turned(updates, rows.element_order)} transpose(%p1), dimensions={order}
        elements = {array(kind, rows.sizes_along(rows.unindexed))} reshape(turned)
        updates = {all_pairs} broadcast(elements), dimensions={spread}
        zero = {kind}[] constant(0)
        zeros = {all_pairs} broadcast(zero), dimensions={{}}
        chosen = {all_pairs} select({is_at}, updates, zeros)
        ROOT sums = {text_of(zeros)} reduce(chosen, zero), dimensions={over}, to_apply=add
        """,
        [_unwrapped(indices), updates],
        reducer("add", kind),
    )


def _rewrite_gather(gather: MutableInstruction, rows: _Rows) -> None:
    operand, indices = gather.operands
    result = _without_nan(gather)
    kind = operand.shape.element_type
    all_pairs = array(kind, rows.comparisons)
    elements = array(kind, rows.sizes_along(rows.unindexed))
    spread, over = integers(range(operand.shape.rank)), integers(rows.indexed)
    order = integers([rows.element_order.index(place) for place in range(gather.shape.rank)])
    comparison, is_at = _compare(rows, indices, clamps=result is gather)
    put(
        result,
        f"""
        {comparison}
        values = {all_pairs} broadcast(%p1), dimensions={spread}
        zero = {kind}[] constant(0)
        zeros = {all_pairs} broadcast(zero), dimensions={{}}
        chosen = {all_pairs} select({is_at}, values, zeros)
        elements = {elements} reduce(chosen, zero), dimensions={over}, to_apply=add
        turned = {_turned(gather, rows.element_order)} reshape(elements)
        ROOT result = {text_of(gather)} transpose(turned), dimensions={order}
        """,
        [_unwrapped(indices), operand],
        reducer("add", kind),
    )


def _without_nan(gather: MutableInstruction) -> MutableInstruction:
    """Return the selection of NaN for indices that are out of range, the only user of ``gather``;
    ``gather`` itself if there is none.
    """
    (user,) = gather.users if len(gather.users) == 1 else (gather,)
    is_checked = (
        user.opcode == "select"
        and user.operands[1] is gather
        and scalar(user.operands[2]) == "nan"
        and _depends_only_on(user.operands[0], gather.operands[1])
    )
    return user if is_checked else gather


def _unwrapped(indices: MutableInstruction) -> MutableInstruction:
    """Return what ``indices`` are before the size of a row is added to negative ones."""
    wrap = indices
    while wrap.opcode == "reshape":
        wrap = wrap.operands[0]
    if wrap.opcode != "select":
        return indices
    is_negative, from_the_end, plain = wrap.operands
    is_wrap = (
        is_negative.opcode == "compare"
        and is_negative.attribute("direction") == "LT"
        and is_negative.operands[0] is plain
        and is_zero(is_negative.operands[1])
        and from_the_end.opcode == "add"
        and plain in from_the_end.operands
    )
    return plain if is_wrap else indices


def _depends_only_on(value: MutableInstruction, source: MutableInstruction) -> bool:
    """Return whether ``value`` is computed from constants and ``source`` alone."""
    origins = reachable({value} - {source}, lambda result: set(result.operands) - {source})
    return all(origin.operands or origin.opcode in ("constant", "iota") for origin in origins)


def _unclamped(indices: MutableInstruction) -> MutableInstruction:
    """Return what ``indices`` are before those out of range are moved into it."""
    is_clamp = indices.opcode == "clamp" and is_zero(indices.operands[0])
    return indices.operands[1] if is_clamp else indices


def _compare(rows: _Rows, indices: MutableInstruction, *, clamps: bool) -> tuple[str, str]:
    """Return HLO that compares each position in a row with each index of it, and the name of the
    result. ``%p0`` are ``indices``, perhaps with other dimensions.
    """
    kind = indices.shape.element_type
    of_row, pairs = array(kind, rows.sizes_along(rows.batches)), array(kind, rows.comparisons)
    mask = array("pred", rows.comparisons)
    order, spread = integers(rows.index_order), rows.spread(rows.batches)
    *sizes, _ = (indices.shape.dimensions[place] for place in rows.index_order)
    part, bounds = array(kind, (*sizes, 1)), "".join(f"[0:{size}], " for size in sizes)
    lines = [
        f"indices = {text_of(indices)} reshape(%p0)",
        f"ordered = {_turned(indices, rows.index_order)} transpose(indices), dimensions={order}",
    ]
    for number, place in enumerate(rows.indexed):
        index, equal = f"any{number}", f"is_equal{number}" if number else "is_at0"
        cut = f"slice={{{bounds}[{number}:{number + 1}]}}"
        lines += [f"part{number} = {part} slice(ordered), {cut}"]
        lines += [f"{index} = {of_row} reshape(part{number})"]
        if clamps:
            lines += [f"first{number} = {kind}[] constant(0)"]
            lines += [f"last{number} = {kind}[] constant({rows.sizes[place] - 1})"]
            lines += [f"index{number} = {of_row} clamp(first{number}, {index}, last{number})"]
            index = f"index{number}"
        lines += [
            f"indices{number} = {pairs} broadcast({index}), dimensions={spread}",
            f"positions{number} = {pairs} iota(), iota_dimension={place}",
            f"{equal} = {mask} compare(positions{number}, indices{number}), direction=EQ",
        ]
        if number:
            lines += [f"is_at{number} = {mask} and(is_at{number - 1}, is_equal{number})"]
    return "\n".join(lines), f"is_at{len(rows.indexed) - 1}"


def _turned(value: MutableInstruction, order: Sequence[int]) -> str:
    """Return the shape of ``value`` with its dimensions in another order."""
    return array(value.shape.element_type, [value.shape.dimensions[place] for place in order])
