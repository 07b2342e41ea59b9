"""The product of a large array with a matrix of a few elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import dot_dimensions, multiply_and_sum, sizes_of
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule


@dataclass(frozen=True, slots=True)
class MultiplyThinDots(Recipe):
    """``most`` is the largest size of the small matrix, in elements; ``thinnest`` is the smallest
    number of its rows or columns: the compiler itself rewrites most products with vectors.
    """

    most: int = 256
    thinnest: int = 2
    id: ClassVar = "multiply-thin-dots"
    title: ClassVar = "a product with a small matrix as multiplications and a sum"
    what: ClassVar = (
        "One operand of a matrix product has at most 256 elements, or each of its matrices in a "
        "batch: the first layer of a policy with four inputs, the directions of a lattice, "
        "rotations of many points. The product becomes a "
        "multiplication of both operands, broadcast against each other, and a sum over the "
        "contracted dimension. The gradient of the small matrix sums over many rows: "
        "`jax.custom_vjp` keeps it a product."
    )
    why: ClassVar = (
        "Such a product is limited by memory. As a matrix product it has a kernel of its own, "
        "which reads few producers, has one result, and cannot be computed again. As a sum of a "
        "few products it is fused with the producers of the operands and with every consumer."
    )
    backfires: ClassVar = (
        "Sums over the rows of the result: a kernel that computes it again for them can be slow. "
        "With `tanh` of a product with four inputs and such a sum, the estimate rose from 8.4 to "
        "23.4 us. With a larger matrix the sums take longer than the bytes, and the units of a GPU "
        "that multiply matrices are idle. These units may compute in fewer bits, so results may "
        "differ, and are more exact."
    )
    backends: ClassVar = frozenset({"cpu", "gpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[9,262144]", "f32[9,2]"),
        """
def program(populations, directions):
    velocities = directions.T @ populations / populations.sum(axis=0)
    along = directions @ velocities
    return populations + 3 * along + 4.5 * along**2
""",
        """
def program(populations, directions):
    momenta = (directions.T[:, :, None] * populations[None, :, :]).sum(axis=1)
    velocities = momenta / populations.sum(axis=0)
    along = (directions[:, :, None] * velocities[None, :, :]).sum(axis=1)
    return populations + 3 * along + 4.5 * along**2
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            if (
                instruction.opcode == "dot"
                and len(instruction.operands) == 2
                and self._fits(instruction)
            ):
                yield Site(instruction, partial(multiply_and_sum, instruction))

    def _fits(self, dot: MutableInstruction) -> bool:
        left, right = (operand.shape for operand in dot.operands)
        if not left.element_type == right.element_type == dot.shape.element_type:
            return False
        if left.bits < 32:
            return False  # sums of narrow types are wider than these
        dimensions = dot_dimensions(dot)
        rows, columns = sizes_of(left, dimensions.left_free), sizes_of(right, dimensions.right_free)
        smaller, shared = min(rows, columns), sizes_of(left, dimensions.left_contracting)
        are_alike = len(dimensions.left_batch) == len(dimensions.right_batch) and len(
            dimensions.left_contracting
        ) == len(dimensions.right_contracting)
        return are_alike and smaller >= self.thinnest and 0 < smaller * shared <= self.most
