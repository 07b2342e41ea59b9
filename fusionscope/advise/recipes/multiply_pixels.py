"""A convolution whose window is one element."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import array, integers, put, text_of
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo.window import WindowDimension, window_dimensions


class MultiplyPixels(Recipe):
    __slots__ = ()
    id: ClassVar = "multiply-pixels"
    title: ClassVar = "a matrix product instead of a convolution with a window of one"
    what: ClassVar = (
        "The window of a convolution is one element, as in a projection between channels, or a "
        "residual connection with a stride. It becomes a product of every pixel with the kernel as "
        "a matrix; a stride becomes a slice before it."
    )
    why: ClassVar = (
        "A library computes convolutions, so its operands and its result go through memory, often "
        "in another layout. A product has a kernel of the compiler's own, which takes the "
        "operations behind it."
    )
    backfires: ClassVar = (
        "The library has a faster algorithm for some shapes: the estimate of both is a floor, so "
        "measure it."
    )
    backends: ClassVar = frozenset({"cpu", "gpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[8,32,32,64]", "f32[1,1,64,64]"),
        """
def program(images, kernel):
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.nn.relu(
        lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=layout)
    )
""",
        """
def program(images, kernel):
    return jax.nn.relu(jnp.einsum("nhwc,cd->nhwd", images, kernel[0, 0]))
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for each in list(graph.walk()):
            if each.opcode == "convolution" and "dim_labels" in each.attributes and _fits(each):
                yield Site(each, partial(_rewrite, each))


def _fits(convolution: MutableInstruction) -> bool:
    groups = ("feature_group_count", "batch_group_count")
    kinds = {each.shape.element_type for each in (*convolution.operands, convolution)}
    window = window_dimensions(convolution.attribute("window") or {})
    is_plain = len(kinds) == 1 and all(convolution.attribute(each) in (None, 1) for each in groups)
    return bool(window) and is_plain and all(map(_is_one, window))


def _is_one(each: WindowDimension) -> bool:
    """Return whether the window is one element, which reads all elements or every few."""
    is_padded = each.low != 0 or each.high != 0 or each.base_dilation != 1
    return each.size == 1 and each.low >= 0 and not (is_padded and each.stride != 1)


def _rewrite(convolution: MutableInstruction) -> None:
    operand, kernel = convolution.operands
    operands, _, labels = convolution.attributes["dim_labels"].partition("->")
    of_operand, _, of_kernel = operands.partition("_")
    window = window_dimensions(convolution.attribute("window"))
    kind = operand.shape.element_type

    def along(label: str) -> WindowDimension | None:
        return window[int(label)] if label.isdigit() else None

    read, ranges = [], []
    for label, size in zip(of_operand, operand.shape.dimensions, strict=True):
        stride = each.stride if (each := along(label)) else 1
        read.append(-(-(size or 1) // stride))
        ranges.append(f"[0:{size}:{stride}]")
    matrix = [label for label in of_kernel if not label.isdigit()]
    sizes = [
        size or 1
        for label, size in zip(of_kernel, kernel.shape.dimensions, strict=True)
        if not label.isdigit()
    ]
    made = [label for label in of_operand if label != "f"] + ["f"]
    channels = sizes[matrix.index("o")]
    product = [read[of_operand.index(label)] for label in made[:-1]] + [channels]
    padded, pads = [], []
    for label, size in zip(made, product, strict=True):
        each = along(label)
        low, high, inner = (each.low, each.high, each.base_dilation - 1) if each else (0, 0, 0)
        padded.append(size + (size - 1) * inner + low + high)
        pads.append(f"{low}_{high}_{inner}")
    put(
        convolution,
        f"""
        pixels = {array(kind, read)} slice(%p0), slice={{{", ".join(ranges)}}}
        matrix = {array(kind, sizes)} reshape(%p1)
        product = {array(kind, product)} dot(pixels, matrix), \
lhs_contracting_dims={{{of_operand.index("f")}}}, rhs_contracting_dims={{{matrix.index("i")}}}
        zero = {kind}[] constant(0)
        padded = {array(kind, padded)} pad(product, zero), padding={"x".join(pads)}
        ROOT result = {text_of(convolution)} transpose(padded), \
dimensions={integers([made.index(label) for label in labels])}
        """,
        [operand, kernel],
    )
