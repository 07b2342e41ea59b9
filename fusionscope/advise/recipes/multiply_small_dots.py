"""Products of matrices that are so small that a library call costs more than the computation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import (
    array,
    dot_dimensions,
    integers,
    put,
    reducer,
    text_of,
)
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
    backends: ClassVar = frozenset({"cpu", "gpu"})
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
        for each in list(graph.walk()):
            if each.opcode == "dot" and len(each.operands) == 2 and _is_small(each, most):
                yield Site(each, partial(_rewrite, each))


def _is_small(dot: MutableInstruction, most: int) -> bool:
    left, right = (operand.shape for operand in dot.operands)
    if not left.element_type == right.element_type == dot.shape.element_type or left.bits < 32:
        return False  # sums of narrow types are wider than these
    found = dot_dimensions(dot)
    if len(found.left_batch) != len(found.right_batch):
        return False
    if len(found.left_contracting) != len(found.right_contracting):
        return False
    rows, columns, shared = (
        _product(left.dimensions, found.left_free),
        _product(right.dimensions, found.right_free),
        _product(left.dimensions, found.left_contracting),
    )
    batch = _product(left.dimensions, found.left_batch)
    return 1 < rows <= most and 1 < columns <= most and shared <= most and batch > most


def _product(sizes: Sequence[int | None], dimensions: Sequence[int]) -> int:
    return math.prod(sizes[each] or 1 for each in dimensions)


def _rewrite(dot: MutableInstruction) -> None:
    left, right = dot.operands
    found = dot_dimensions(dot)
    # The product has the dimensions of the batch, the rows, the contracted ones, the columns.
    order = (*found.left_batch, *found.left_free, *found.left_contracting)
    columns = [right.shape.dimensions[each] for each in found.right_free]
    sizes = [*(left.shape.dimensions[each] for each in order), *columns]
    batch, rows = len(found.left_batch), len(found.left_free)
    shared = range(batch + rows, len(order))
    places = dict(zip(found.right_batch, range(batch), strict=True))
    places |= dict(zip(found.right_contracting, shared, strict=True))
    places |= dict(zip(found.right_free, range(len(order), len(sizes)), strict=True))
    kind = dot.shape.element_type
    whole = array(kind, sizes)
    of_left = integers([order.index(each) for each in range(len(order))])
    of_right = integers([places[each] for each in range(len(places))])
    over = f"dimensions={integers(shared)}, to_apply=add"
    put(
        dot,
        f"""
        left = {whole} broadcast(%p0), dimensions={of_left}
        right = {whole} broadcast(%p1), dimensions={of_right}
        products = {whole} multiply(left, right)
        zero = {kind}[] constant(0)
        ROOT sums = {text_of(dot)} reduce(products, zero), {over}
        """,
        [left, right],
        reducer("add", kind),
    )
