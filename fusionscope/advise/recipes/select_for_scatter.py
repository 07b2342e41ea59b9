"""A gather of one element per row, whose gradient is a scatter."""

from __future__ import annotations

from collections.abc import Iterator
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
        "A gather takes one element of each row, such as the logarithm of the probability of the "
        "right class. Its gradient is a scatter of one element into each row of zeros. Both become "
        "a selection of the position in the row that equals the index."
    )
    why: ClassVar = (
        "A scatter is a kernel of its own, which first needs a kernel that fills its result with "
        "zeros. A selection is elementwise: it is fused into the consumers of the gradient, and "
        "the zeros never go through memory."
    )
    backfires: ClassVar = (
        "The forward pass reads the whole row instead of one element. Without a gradient the "
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
        for scatter in list(graph.walk()):
            if scatter.opcode == "scatter" and _is_gradient(scatter):
                indices = scatter.operands[1]
                for user in indices.users:
                    if (
                        user.opcode == "gather"
                        and user.operands[1] is indices
                        and _takes_one_a_row(user, _GATHER)
                    ):
                        yield Site(user, partial(_rewrite_gather, user))
                yield Site(scatter, partial(_rewrite_scatter, scatter))


# The attributes of both for their dimensions: windows of size one, dimensions that an index
# addresses, and row dimensions that the operand and the indices share.
_GATHER = (
    "offset_dims",
    "collapsed_slice_dims",
    "start_index_map",
    "operand_batching_dims",
    "start_indices_batching_dims",
)
_SCATTER = (
    "update_window_dims",
    "inserted_window_dims",
    "scatter_dims_to_operand_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
)


def _is_gradient(scatter: MutableInstruction) -> bool:
    return (
        len(scatter.operands) == 3
        and combiner(scatter) == "add"
        and is_zero(scatter.operands[0])
        and _takes_one_a_row(scatter, _SCATTER)
    )


def _takes_one_a_row(instruction: MutableInstruction, names: tuple[str, ...]) -> bool:
    """Return whether it reads or writes one element for each row of its first operand."""
    operand, indices = instruction.operands[:2]
    window, single, indexed, rows, of_indices = (
        tuple(instruction.attribute(name) or ()) for name in names
    )
    return (
        not window
        and len(indexed) == 1
        and single == indexed
        and rows
        == tuple(dimension for dimension in range(operand.shape.rank) if dimension not in indexed)
        and of_indices == tuple(range(len(rows)))
        and indices.shape.dimensions[len(rows) :] == (1, 1)
        and instruction.attribute("index_vector_dim") == indices.shape.rank - 1
    )


def _rewrite_scatter(scatter: MutableInstruction) -> None:
    zeros, indices, updates = scatter.operands
    indices = _unwrapped(indices)
    row = text_of(zeros)
    put(
        scatter,
        f"""
        index = {_without_row(scatter, indices)} reshape(%p0)
        {_compare(scatter, indices)}
        update = {_without_row(scatter, updates)} reshape(%p1)
        updates = {row} broadcast(update), dimensions={_rows(scatter)}
        zero = {updates.shape.element_type}[] constant(0)
        zeros = {row} broadcast(zero), dimensions={{}}
        ROOT result = {row} select(is_at, updates, zeros)
        """,
        [indices, updates],
    )


def _rewrite_gather(gather: MutableInstruction) -> None:
    operand, indices = gather.operands[0], _unwrapped(gather.operands[1])
    (dimension,) = gather.attribute("start_index_map")
    kind, of_index = operand.shape.element_type, indices.shape.element_type
    row, element_type = text_of(operand), _without_row(gather, operand)
    result = _without_nan(gather)
    limits = ""
    if result is gather:
        last = (operand.shape.dimensions[dimension] or 1) - 1
        limits = f"""
        first = {of_index}[] constant(0)
        last = {of_index}[] constant({last})
        index = {_without_row(gather, indices)} clamp(first, any, last)"""
    put(
        result,
        f"""
        {"any" if limits else "index"} = {_without_row(gather, indices)} reshape(%p0)
        {limits}
        {_compare(gather, indices)}
        zero = {kind}[] constant(0)
        zeros = {row} broadcast(zero), dimensions={{}}
        chosen = {row} select(is_at, %p1, zeros)
        element = {element_type} reduce(chosen, zero), dimensions={{{dimension}}}, to_apply=add
        ROOT result = {text_of(gather)} reshape(element)
        """,
        [indices, operand],
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


def _compare(instruction: MutableInstruction, indices: MutableInstruction) -> str:
    """Return HLO that compares each position in a row with ``index``."""
    (dimension,) = _indexed(instruction)
    sizes = instruction.operands[0].shape.dimensions
    row = array(indices.shape.element_type, sizes)
    return f"""
        indices = {row} broadcast(index), dimensions={_rows(instruction)}
        positions = {row} iota(), iota_dimension={dimension}
        is_at = {array("pred", sizes)} compare(positions, indices), direction=EQ"""


def _indexed(instruction: MutableInstruction) -> tuple[int, ...]:
    name = (_SCATTER if instruction.opcode == "scatter" else _GATHER)[2]
    return tuple(instruction.attribute(name))


def _rows(instruction: MutableInstruction) -> str:
    """Return the dimensions that number rows."""
    rank = instruction.operands[0].shape.rank
    return integers(
        [dimension for dimension in range(rank) if dimension not in _indexed(instruction)]
    )


def _without_row(instruction: MutableInstruction, value: MutableInstruction) -> str:
    """Return the shape of one element of the type of ``value`` for each row."""
    sizes = instruction.operands[0].shape.dimensions
    remaining = [size for place, size in enumerate(sizes) if place not in _indexed(instruction)]
    return array(value.shape.element_type, remaining)
