"""The largest element of values whose order is known before they are normalized."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import FLOATS, combiner, unspread
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_operand

_COMPARING = frozenset({"and", "compare", "or", "parameter", "select", "tuple"})


class ArgmaxOfLogits(Recipe):
    __slots__ = ()
    id: ClassVar = "argmax-of-logits"
    title: ClassVar = "the position of the largest element before `softmax` instead of after it"
    what: ClassVar = (
        "`argmax` or the positions of `top_k` are taken of values that were computed from others "
        "without changing their order: `softmax`, `log_softmax`, `exp`. They are taken of those "
        "others."
    )
    why: ClassVar = (
        "The search for the largest element ends a kernel, so its operand goes through memory. "
        "If only positions are needed, the normalization need not be computed at all."
    )
    backfires: ClassVar = (
        "Normalization may round two values to the same number; then the first position was "
        "found before, and that of the larger value is found now. If the normalized values are "
        "needed too, they are computed either way."
    )
    backends: ClassVar = frozenset({"cpu", "gpu", "tpu"})
    example: ClassVar = Example(
        ("f32[1024,4096]",),
        """
def program(logits):
    return jnp.argmax(jax.nn.softmax(logits), axis=-1)
""",
        """
def program(logits):
    return jnp.argmax(logits, axis=-1)
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            dimension = _searched(instruction)
            if dimension is not None:
                start = _same_order(instruction.operands[0], dimension)
                if start is not instruction.operands[0]:
                    yield Site(
                        instruction,
                        partial(replace_operand, instruction, instruction.operands[0], start),
                    )


def _searched(instruction: MutableInstruction) -> int | None:
    """Return the dimension along which it compares its first operand, if only positions of its
    result are read.
    """
    if instruction.is_root or any(user.attribute("index") == 0 for user in instruction.users):
        return None
    if instruction.opcode == "topk":
        return instruction.operands[0].shape.rank - 1
    if instruction.opcode == "reduce" and len(instruction.operands) == 4:
        (comparator,) = instruction.called
        dimensions = instruction.attribute("dimensions")
        is_float = instruction.operands[0].shape.element_type in FLOATS
        positions = instruction.operands[1].shape.element_type
        compares = all(instruction.opcode in _COMPARING for instruction in comparator.instructions)
        if compares and is_float and positions not in FLOATS and len(dimensions) == 1:
            return int(dimensions[0])
    return None


def _same_order(value: MutableInstruction, dimension: int) -> MutableInstruction:
    """Return the first value whose elements along ``dimension`` have the same order as in
    ``value``.
    """
    while True:
        if value.opcode == "exponential":
            value = value.operands[0]
        elif value.opcode in ("add", "divide", "subtract"):
            start, by = value.operands
            is_same = by.opcode == "broadcast" and dimension not in by.attribute("dimensions")
            if not is_same or (value.opcode == "divide" and not _is_sum_of_exponentials(by)):
                return value
            value = start
        else:
            return value


def _is_sum_of_exponentials(value: MutableInstruction) -> bool:
    """Return whether it is a sum of exponentials, which is positive."""
    value = unspread(value)
    return (
        value.opcode == "reduce"
        and combiner(value) == "add"
        and value.operands[0].opcode == "exponential"
    )
