"""Equal calls of a library, each on its own operands."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import array, build, put, text_of
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule

# Their leading dimensions are those of a batch.
_BATCHED = frozenset({"cholesky", "fft", "triangular-solve"})


class BatchCalls(Recipe):
    __slots__ = ()
    id: ClassVar = "batch-calls"
    title: ClassVar = "equal Fourier transforms or decompositions as one of a batch"
    what: ClassVar = (
        "Several Fourier transforms, Cholesky decompositions or triangular solves of one shape, "
        "none of which needs the result of another. Their operands are stacked, and one call "
        "computes all."
    )
    why: ClassVar = (
        "Each of them is a call of a library, with kernels and copies of its own. A batch has as "
        "many launches as one of them."
    )
    backfires: ClassVar = (
        "Stacking copies the operands, unless what computes them is fused with it. Large "
        "operands, each of which occupies the device, gain little."
    )
    backends: ClassVar = frozenset({"gpu", "tpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[256,256]",) * 4,
        """
def program(a, b, c, d):
    of_a, of_b, of_c, of_d = [jnp.fft.rfft2(jnp.tanh(x)) for x in (a, b, c, d)]
    return of_a * of_b + of_c * of_d
""",
        """
def program(a, b, c, d):
    of_a, of_b, of_c, of_d = jnp.fft.rfft2(jnp.tanh(jnp.stack([a, b, c, d])))
    return of_a * of_b + of_c * of_d
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for computation in graph.post_order():
            for calls in _groups(computation):
                yield Site(calls[0], partial(_rewrite, calls), also=tuple(calls[1:]))


def _groups(computation: MutableComputation) -> list[list[MutableInstruction]]:
    """Return the equal calls of which none needs another, if there are at least two."""
    depths: dict[MutableInstruction, dict[Hashable, int]] = {}
    groups: dict[Hashable, list[MutableInstruction]] = {}
    for instruction in computation.post_order():
        depth: dict[Hashable, int] = {}
        for operand in instruction.operands:
            for call, count in depths[operand].items():
                depth[call] = max(depth.get(call, 0), count)
        if instruction.opcode in _BATCHED:
            call = _call(instruction)
            groups.setdefault((call, depth.get(call, 0)), []).append(instruction)
            depth[call] = depth.get(call, 0) + 1
        depths[instruction] = depth
    return [calls for calls in groups.values() if len(calls) > 1]


def _call(instruction: MutableInstruction) -> Hashable:
    """Return what equal calls have in common."""
    attributes = instruction.attributes
    of_call = sorted((key, text) for key, text in attributes.items() if key != "metadata")
    shapes = [text_of(operand) for operand in instruction.operands]
    return instruction.opcode, tuple(of_call), tuple(shapes)


def _rewrite(calls: list[MutableInstruction]) -> None:
    first = calls[0]
    attributes = "".join(
        f", {key}={text}" for key, text in first.attributes.items() if key != "metadata"
    )
    lines: list[str] = []
    operands: list[MutableInstruction] = []
    for slot, operand in enumerate(first.operands):
        single, whole = (_stacked(operand, count) for count in (1, len(calls)))
        names = []
        for number, call in enumerate(calls):
            names.append(f"part.{slot}.{number}")
            lines.append(f"{names[-1]} = {single} reshape(%p{len(operands)})")
            operands.append(call.operands[slot])
        lines.append(f"all.{slot} = {whole} concatenate({', '.join(names)}), dimensions={{0}}")
    stacks = ", ".join(f"all.{slot}" for slot in range(len(first.operands)))
    result = _stacked(first, len(calls))
    lines.append(f"ROOT batch = {result} {first.opcode}({stacks}){attributes}")
    batch = build(first, "\n".join(lines), operands)
    later = "".join(f", [0:{size}]" for size in first.shape.dimensions)
    for number, call in enumerate(calls):
        put(
            call,
            f"""
            part = {_stacked(call, 1)} slice(%p0), slice={{[{number}:{number + 1}]{later}}}
            ROOT all = {text_of(call)} reshape(part)
            """,
            [batch],
        )


def _stacked(value: MutableInstruction, count: int) -> str:
    """Return the shape of ``count`` values, one behind the other in a new first dimension."""
    return array(value.shape.element_type, (count, *value.shape.dimensions))
