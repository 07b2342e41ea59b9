"""Shares the work of a kernel among programs, by a dimension of its results."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from fusionscope.advise.recipes.patterns import dot_dimensions
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.attributes import read_slice
from fusionscope.hlo.window import read_window
from fusionscope.sketch.expressions import ELEMENTWISE, WHOLE, Block


class NotShared(Exception):
    """An operation whose parts are not computed from parts of its operands."""


def operand_blocks(instruction: MutableInstruction, block: Block) -> list[Block]:
    """Return the parts of the operands from which ``block`` of ``instruction`` is computed. Raises
    ``NotShared``.
    """
    if block == WHOLE or not instruction.operands:
        return [WHOLE] * len(instruction.operands)
    if instruction.opcode in ELEMENTWISE:
        return [block if operand.shape.dimensions else WHOLE for operand in instruction.operands]
    rule = _RULES.get(instruction.opcode)
    if rule is None or block.dimension is None:
        raise NotShared(instruction.opcode)
    return rule(instruction, block.dimension)


def _broadcast(instruction: MutableInstruction, dimension: int) -> list[Block]:
    dimensions = list(instruction.attribute("dimensions") or ())
    return [Block(dimensions.index(dimension)) if dimension in dimensions else WHOLE]


def _transpose(instruction: MutableInstruction, dimension: int) -> list[Block]:
    return [Block(instruction.attribute("dimensions")[dimension])]


def _reshape(instruction: MutableInstruction, dimension: int) -> list[Block]:
    """A dimension before which there are as many elements, so that a share of one is a share of the
    other.
    """
    sizes = instruction.operands[0].shape.dimensions
    before = prod(size or 1 for size in instruction.shape.dimensions[:dimension])
    for source in range(len(sizes)):
        if prod(size or 1 for size in sizes[:source]) == before and sizes[source] != 1:
            return [Block(source)]
    raise NotShared(instruction.opcode)


def _reduce(instruction: MutableInstruction, dimension: int) -> list[Block]:
    count = len(instruction.operands) // 2
    reduced = set(instruction.attribute("dimensions"))
    rank = instruction.operands[0].shape.rank
    source = [axis for axis in range(rank) if axis not in reduced][dimension]
    return [Block(source)] * count + [WHOLE] * count


def _reduce_window(instruction: MutableInstruction, dimension: int) -> list[Block]:
    window = read_window(instruction.attributes["window"])[dimension]
    if (window.size, window.stride, window.low, window.high, window.base_dilation) != (
        1,
        1,
        0,
        0,
        1,
    ):
        raise NotShared(instruction.opcode)
    count = len(instruction.operands) // 2
    return [Block(dimension)] * count + [WHOLE] * count


def _slice(instruction: MutableInstruction, dimension: int) -> list[Block]:
    part = read_slice(instruction.attributes["slice"])[dimension]
    if len(part) != instruction.operands[0].shape.dimensions[dimension]:
        raise NotShared(instruction.opcode)
    return [Block(dimension)]


def _pad(instruction: MutableInstruction, dimension: int) -> list[Block]:
    if any(instruction.attribute("padding")[dimension]):
        raise NotShared(instruction.opcode)
    return [Block(dimension), WHOLE]


def _along_others(instruction: MutableInstruction, dimension: int) -> list[Block]:
    """For a concatenation or reversal of other dimensions."""
    if dimension in instruction.attribute("dimensions"):
        raise NotShared(instruction.opcode)
    return [Block(dimension)] * len(instruction.operands)


def _dynamic_slice(instruction: MutableInstruction, dimension: int) -> list[Block]:
    source = instruction.operands[0].shape
    if source.dimensions[dimension] != instruction.shape.dimensions[dimension]:
        raise NotShared(instruction.opcode)
    return [Block(dimension)] + [WHOLE] * source.rank


def _dynamic_update_slice(instruction: MutableInstruction, dimension: int) -> list[Block]:
    update = instruction.operands[1].shape
    if update.dimensions[dimension] != instruction.shape.dimensions[dimension]:
        raise NotShared(instruction.opcode)
    return [Block(dimension), Block(dimension)] + [WHOLE] * update.rank


def _element(_: MutableInstruction, dimension: int) -> list[Block]:
    return [Block(dimension)]


def _dot(instruction: MutableInstruction, dimension: int) -> list[Block]:
    roles = dot_dimensions(instruction)
    batch_count, left_count = len(roles.left_batch), len(roles.left_free)
    if dimension < batch_count:
        return [Block(roles.left_batch[dimension]), Block(roles.right_batch[dimension])]
    place = dimension - batch_count
    if place < left_count:
        return [Block(roles.left_free[place]), WHOLE]
    return [WHOLE, Block(roles.right_free[place - left_count])]


_RULES: dict[str, Callable[[MutableInstruction, int], list[Block]]] = {
    "broadcast": _broadcast,
    "concatenate": _along_others,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "get-tuple-element": _element,
    "pad": _pad,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "reshape": _reshape,
    "reverse": _along_others,
    "slice": _slice,
    "transpose": _transpose,
}
