"""Products of matrices that are so small that a library call costs more than the computation."""

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
class MultiplySmallDots(Recipe):
    """``most_on_cpu`` and ``most_on_gpu`` are the largest sizes of a matrix, in elements per
    dimension.
    """

    most_on_cpu: int = 16
    most_on_gpu: int = 4
    id: ClassVar = "multiply-small-dots"
    title: ClassVar = "many products of small matrices as multiplications and a sum"
    what: ClassVar = (
        "A batched product of matrices with at most 16 rows and columns on a CPU, at most 4 on a "
        "GPU. It becomes a multiplication of both operands, broadcast against each other, and a "
        "sum over the contracted dimension."
    )
    why: ClassVar = (
        "A library is called once for each small matrix, and nothing is fused into or out of the "
        "call. The multiplication and the sum are fused with the producers of the operands and the "
        "consumers of the result."
    )
    backfires: ClassVar = (
        "Larger matrices: on a GPU, from 8 rows on, a product becomes one kernel with its "
        "neighbours, and the sum is slower. A batch of products with vectors took up to four times "
        "as long on a CPU."
    )
    backends: ClassVar = frozenset({"cpu", "gpu", "tpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[4096,4,4]", "f32[4096,4,4]"),
        """
def program(some, others):
    return jnp.tanh(jnp.einsum("bij,bjk->bik", jnp.sin(some), others)) + 1
""",
        """
def program(some, others):
    products = jnp.sin(some)[:, :, :, None] * others[:, None, :, :]
    return jnp.tanh(products.sum(axis=2)) + 1
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        most = self.most_on_cpu if backend == "cpu" else self.most_on_gpu
        for instruction in list(graph.walk()):
            if (
                instruction.opcode == "dot"
                and len(instruction.operands) == 2
                and _is_small(instruction, most)
            ):
                yield Site(instruction, partial(multiply_and_sum, instruction))


def _is_small(dot: MutableInstruction, most: int) -> bool:
    left, right = (operand.shape for operand in dot.operands)
    if not left.element_type == right.element_type == dot.shape.element_type or left.bits < 32:
        return False  # sums of narrow types are wider than these
    dimensions = dot_dimensions(dot)
    if len(dimensions.left_batch) != len(dimensions.right_batch):
        return False
    if len(dimensions.left_contracting) != len(dimensions.right_contracting):
        return False
    rows, columns, shared = (
        sizes_of(left, dimensions.left_free),
        sizes_of(right, dimensions.right_free),
        sizes_of(left, dimensions.left_contracting),
    )
    batch = sizes_of(left, dimensions.left_batch)
    return 1 < rows <= most and 1 < columns <= most and shared <= most and batch > most
