"""The product of a computed matrix with a vector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import dot_dimensions, put, reducer, text_of
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.search import reachable


@dataclass(frozen=True, slots=True)
class MultiplyVector(Recipe):
    """``fewest`` is the least length of a row, in elements."""

    fewest: int = 256
    id: ClassVar = "multiply-vector"
    title: ClassVar = "the product with a vector as a multiplication and a sum"
    what: ClassVar = (
        "A matrix is computed element by element, and read only by its product with a vector, "
        "along rows of at least 256 elements. The product becomes a multiplication and a sum over "
        "rows."
    )
    why: ClassVar = (
        "A library computes the product, so the matrix goes through memory, and a kernel that only "
        "computes it is slow. The multiplication and the sum form one kernel with it."
    )
    backfires: ClassVar = (
        "A matrix that is an argument, or the result of a matrix product: the library is as fast. "
        "Rows of 64 elements took as long as before, or longer."
    )
    backends: ClassVar = frozenset({"cpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[1024,1024]", "f32[1024]"),
        """
def program(angles, weights):
    return jnp.sin(angles) @ weights
""",
        """
def program(angles, weights):
    return (jnp.sin(angles) * weights).sum(axis=1)
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            if (
                instruction.opcode == "dot"
                and len(instruction.operands) == 2
                and self._fits(instruction)
            ):
                yield Site(instruction, partial(_rewrite, instruction))

    def _fits(self, dot: MutableInstruction) -> bool:
        matrix, vector = dot.operands
        dimensions = dot_dimensions(dot)
        return (
            matrix.shape.rank == 2
            and vector.shape.rank == 1
            and dimensions.left_contracting == (1,)
            and (matrix.shape.dimensions[1] or 0) >= self.fewest
            and matrix.shape.element_type == vector.shape.element_type == dot.shape.element_type
            and matrix.shape.bits >= 32  # sums of narrow types are wider than these
            and len(matrix.users) == 1
            and _is_computed(matrix)
        )


def _is_computed(value: MutableInstruction) -> bool:
    """Return whether it is elementwise up to arguments and constants."""

    def computed(operation: MutableInstruction) -> list[MutableInstruction]:
        return [operand for operand in operation.operands if operand.opcode not in _GIVEN]

    return value.opcode not in ("constant", "parameter") and all(
        is_elementwise(operation) and operation.opcode != "convert"
        for operation in reachable([value], computed)
    )


_GIVEN = frozenset({"broadcast", "constant", "parameter"})


def _rewrite(dot: MutableInstruction) -> None:
    matrix, vector = dot.operands
    kind, whole = dot.shape.element_type, text_of(matrix)
    put(
        dot,
        f"""
        weights = {whole} broadcast(%p1), dimensions={{1}}
        products = {whole} multiply(%p0, weights)
        zero = {kind}[] constant(0)
        ROOT sums = {text_of(dot)} reduce(products, zero), dimensions={{1}}, to_apply=add
        """,
        [matrix, vector],
        reducer("add", kind),
    )
