"""Lengths and weighted sums of gradients per example, without these gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import (
    DotDimensions,
    array,
    combiner,
    dot_dimensions,
    integers,
    is_zero,
    put,
    reducer,
    sizes_of,
    text_of,
)
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule

_MERGED = -1  # in an order, a dimension that a reshape made of others
_HIGHEST = ", operand_precision={highest,highest}"


class Squares(NamedTuple):
    """``total`` is the sum of the squares of each example's gradient."""

    total: MutableInstruction


class Weighted(NamedTuple):
    """``total`` is the sum of all gradients, with the dimensions of the product in this ``order``,
    without the batch, each times its weight if a ``reader`` has weights as its operand ``number``.
    """

    total: MutableInstruction
    order: tuple[int, ...]
    reader: MutableInstruction | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class FactorGradients(Recipe):
    """``least`` is the least size of a gradient, in elements."""

    least: int = 1024
    id: ClassVar = "factor-gradients"
    title: ClassVar = "lengths and sums of gradients per example from their factors"
    what: ClassVar = (
        "A batch of products of which only the lengths of each, and weighted sums over the batch, "
        "are needed: gradients per example that are clipped. The gradient of a weight is the "
        "product of an error and an input: its length is that of the one times that of the other, "
        "and a weighted sum is one matrix product. With several steps to an example, such as "
        "tokens, the length needs their products with each other."
    )
    why: ClassVar = (
        "A gradient for each example is as large as the weights times the batch. The factors are "
        "as large as the activations."
    )
    backfires: ClassVar = (
        "The numbers are rounded in another order. If many steps belong to an example, their "
        "products with each other may take longer than the gradient; the recipe leaves those that "
        "have more elements than it."
    )
    tolerance: ClassVar = 1e-5
    backends: ClassVar = frozenset({"cpu", "gpu", "tpu"})
    example: ClassVar = Example(
        ("f32[1024,512]", "f32[128,512]", "f32[128,1024]"),
        """
def program(weights, inputs, targets):
    def loss(weights, x, target):
        return ((jnp.tanh(weights @ x) - target) ** 2).sum()

    gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, inputs, targets)
    lengths = jnp.sqrt((gradients**2).sum((1, 2)))
    return jnp.tensordot(1 / jnp.maximum(lengths, 1), gradients, 1)
""",
        """
def program(weights, inputs, targets):
    def loss(outputs):
        return ((jnp.tanh(outputs) - targets) ** 2).sum()

    errors = jax.grad(loss)(inputs @ weights.T)
    lengths = jnp.sqrt((errors**2).sum(1) * (inputs**2).sum(1))
    return (errors / jnp.maximum(lengths, 1)[:, None]).T @ inputs
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for product in list(graph.walk()):
            if product.opcode != "dot" or not product.shape.is_floating:
                continue
            dimensions = dot_dimensions(product)
            if len(dimensions.left_batch) != 1 or len(dimensions.left_contracting) > 1:
                continue
            steps = sizes_of(product.operands[0].shape, dimensions.left_contracting)
            size = sizes_of(product.shape, range(1, product.shape.rank))
            if size >= max(self.least, 2 * steps * steps) and (totals := _totals(product)):
                sums = [total.total for total in totals]
                yield Site(sums[0], partial(_rewrite, product, totals), tuple(sums[1:]))


def _totals(product: MutableInstruction) -> list[Squares | Weighted]:
    """Return what is computed of a batch of products, nothing if it is also needed otherwise."""
    batch = product.shape.dimensions[0]
    totals: list[Squares | Weighted] = []
    pending = [(product, tuple(range(product.shape.rank)))]
    while pending:
        value, order = pending.pop()
        if value.is_root or not value.users:
            return []
        for user in value.users:
            if user.opcode == "transpose":
                pending.append(
                    (user, tuple(order[place] for place in user.attribute("dimensions")))
                )
            elif user.opcode == "reshape" and (order[0], *user.shape.dimensions[:1]) == (0, batch):
                pending.append((user, (0,) + (_MERGED,) * (user.shape.rank - 1)))
            elif sums := _totals_of(value, user, order):
                totals += sums
            else:
                return []
    return totals


def _totals_of(
    value: MutableInstruction, user: MutableInstruction, order: tuple[int, ...]
) -> list[Squares | Weighted]:
    """Return the sums that a ``user`` of the products leads to; nothing if it leads to others."""
    place = order.index(0)
    inner = tuple(dimension for dimension in range(len(order)) if dimension != place)
    sums, factors = list(user.users), {*user.operands} - {value}
    if user.opcode == "multiply" and not factors:
        is_all = not user.is_root and all(_is_sum(total, inner) for total in sums)
        return [Squares(total) for total in sums] if is_all else []
    if _MERGED in order:
        return []
    inner_order, reader = tuple(order[dimension] for dimension in inner), None
    if user.opcode == "dot" and len(factors) == 1:
        (weights,) = factors
        number = user.operands.index(weights)
        dimensions = dot_dimensions(user)
        over = dimensions.left_contracting if number else dimensions.right_contracting
        is_sum = weights.shape.rank == 1 and over == (place,)
        return [Weighted(user, inner_order, user, number)] if is_sum else []
    if user.opcode == "multiply":
        (reader,) = factors
        if (
            user.is_root
            or reader.opcode != "broadcast"
            or reader.attribute("dimensions") != (place,)
        ):
            return []
    else:
        sums = [user]
    is_all = all(_is_sum(total, (place,)) for total in sums)
    return [Weighted(total, inner_order, reader) for total in sums] if is_all else []


def _is_sum(total: MutableInstruction, over: tuple[int, ...]) -> bool:
    return (
        total.opcode == "reduce"
        and len(total.operands) == 2
        and combiner(total) == "add"
        and is_zero(total.operands[1])
        and tuple(sorted(total.attribute("dimensions"))) == over
    )


def _rewrite(product: MutableInstruction, totals: list[Squares | Weighted]) -> None:
    dimensions = dot_dimensions(product)
    for total in totals:
        if isinstance(total, Squares):
            _multiply_lengths(total.total, product, dimensions)
        else:
            _sum_factors(total, product, dimensions)


def _multiply_lengths(
    total: MutableInstruction, product: MutableInstruction, dimensions: DotDimensions
) -> None:
    left, right = product.operands
    element_type, steps = total.shape.element_type, len(dimensions.left_contracting)
    batch = product.shape.dimensions[0]
    count = sizes_of(left.shape, dimensions.left_contracting)
    of_steps = array(element_type, (batch, *(count,) * (2 * steps)))
    lines = [
        f"{name} = {of_steps} dot(%p{number}, %p{number}), lhs_batch_dims={integers(places)}, "
        f"rhs_batch_dims={integers(places)}, lhs_contracting_dims={integers(free)}, "
        f"rhs_contracting_dims={integers(free)}{_HIGHEST}"
        for number, (name, places, free) in enumerate(
            (
                ("lefts", dimensions.left_batch, dimensions.left_free),
                ("rights", dimensions.right_batch, dimensions.right_free),
            )
        )
    ]
    if steps:
        lines += [
            f"both = {of_steps} multiply(lefts, rights)",
            f"zero = {element_type}[] constant(0)",
            f"ROOT lengths = {text_of(total)} reduce(both, zero), dimensions={{1,2}}, to_apply=add",
        ]
    else:
        lines.append(f"ROOT lengths = {text_of(total)} multiply(lefts, rights)")
    put(total, "\n".join(lines), [left, right], reducer("add", element_type))


def _sum_factors(
    weighted: Weighted, product: MutableInstruction, dimensions: DotDimensions
) -> None:
    total, order, reader, number = weighted
    weights = [reader.operands[number]] if reader is not None else []
    left, right = product.operands
    precision = product.attributes.get("operand_precision")
    lines = []
    if weights:
        lines = [
            f"weights = {text_of(left)} broadcast(%p2), "
            f"dimensions={integers(dimensions.left_batch)}",
            f"lefts = {text_of(left)} multiply(%p0, weights)",
        ]
    free = sorted(order)
    sizes = [product.shape.dimensions[dimension] for dimension in free]
    lines += [
        f"whole = {array(total.shape.element_type, sizes)} "
        f"dot({'lefts' if weights else '%p0'}, %p1), "
        f"lhs_contracting_dims={integers(dimensions.left_batch + dimensions.left_contracting)}, "
        f"rhs_contracting_dims={integers(dimensions.right_batch + dimensions.right_contracting)}"
        + (f", operand_precision={precision}" if precision else ""),
        f"ROOT sums = {text_of(total)} transpose(whole), "
        f"dimensions={integers([free.index(dimension) for dimension in order])}",
    ]
    put(total, "\n".join(lines), [left, right, *weights])
