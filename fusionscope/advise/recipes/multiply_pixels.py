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
        "a matrix; a stride becomes a slice before it. The gradient of the kernel becomes a "
        "product, too."
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
    backends: ClassVar = frozenset({"cpu", "gpu", "tpu"})
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
        plain = [
            instruction
            for instruction in graph.walk()
            if instruction.opcode == "convolution" and _is_plain(instruction)
        ]
        of_pixels = [
            convolution for convolution in plain if all(map(_is_one, _window(convolution)))
        ]
        images = {pixel.operands[0] for pixel in of_pixels}
        for pixel in of_pixels:
            yield Site(pixel, partial(_rewrite, pixel))
        for convolution in plain:
            if (
                convolution.operands[0] in images
                and convolution not in of_pixels
                and _is_gradient(convolution)
            ):
                yield Site(convolution, partial(_rewrite_gradient, convolution))


def _is_plain(convolution: MutableInstruction) -> bool:
    groups = ("feature_group_count", "batch_group_count")
    kinds = {operand.shape.element_type for operand in (*convolution.operands, convolution)}
    is_whole = all(convolution.attribute(group) in (None, 1) for group in groups)
    is_known = "dim_labels" in convolution.attributes and bool(_window(convolution))
    return is_known and len(kinds) == 1 and is_whole


def _window(convolution: MutableInstruction) -> tuple[WindowDimension, ...]:
    return window_dimensions(convolution.attribute("window") or {})


def _labels(convolution: MutableInstruction) -> tuple[str, str, str]:
    """Return what the dimensions of both operands and of the result are."""
    operands, _, result = convolution.attributes["dim_labels"].partition("->")
    operand, _, kernel = operands.partition("_")
    return operand, kernel, result


def _is_one(dimension: WindowDimension) -> bool:
    """Return whether the window is one element, which reads all elements or every few."""
    is_padded = dimension.low != 0 or dimension.high != 0 or dimension.base_dilation != 1
    return dimension.size == 1 and dimension.low >= 0 and not (is_padded and dimension.stride != 1)


def _is_gradient(convolution: MutableInstruction) -> bool:
    """Return whether it sums, over all pixels that a window of one element reads, the products of
    the features of both operands: the gradient of a kernel with such a window.
    """
    return all(
        dimension.low == 0
        and dimension.high <= 0
        and dimension.base_dilation == 1
        and not dimension.is_reversed
        and size == 1
        for dimension, size in zip(_window(convolution), _pixels(convolution), strict=True)
    )


def _pixels(convolution: MutableInstruction) -> list[int | None]:
    """Return the sizes of the result in the dimensions of the window."""
    *_, labels = _labels(convolution)
    sizes = dict(zip(labels, convolution.shape.dimensions, strict=True))
    return [sizes[str(place)] for place in range(len(sizes) - 2)]


def _rewrite_gradient(convolution: MutableInstruction) -> None:
    images, gradients = convolution.operands
    of_images, of_gradients, labels = _labels(convolution)
    window, kind = _window(convolution), images.shape.element_type
    read: list[int] = []
    ranges = []
    for label, size in zip(of_images, images.shape.dimensions, strict=True):
        dimension = window[int(label)] if label.isdigit() else None
        read.append(dimension.size if dimension else size or 1)
        step = dimension.window_dilation if dimension else 1
        ranges.append(f"[0:{min(size or 1, read[-1] * step)}:{step}]")
    summed = [label for label in of_images if label != "b"]
    of_image = integers([of_images.index(label) for label in summed])
    of_gradient = integers(
        [of_gradients.index("i" if dimension == "f" else dimension) for dimension in summed]
    )
    sizes = dict(zip(labels, convolution.shape.dimensions, strict=True))
    result_labels = [label for label in labels if not label.isdigit()]
    put(
        convolution,
        f"""
        pixels = {array(kind, read)} slice(%p0), slice={{{", ".join(ranges)}}}
        product = {array(kind, (sizes["f"], sizes["b"]))} dot(%p1, pixels), \
lhs_contracting_dims={of_gradient}, rhs_contracting_dims={of_image}
        ordered = {array(kind, [sizes[label] for label in result_labels])} transpose(product), \
dimensions={integers(["fb".index(label) for label in result_labels])}
        ROOT result = {text_of(convolution)} reshape(ordered)
        """,
        [images, gradients],
    )


def _rewrite(convolution: MutableInstruction) -> None:
    operand, kernel = convolution.operands
    of_operand, of_kernel, labels = _labels(convolution)
    window = _window(convolution)
    kind = operand.shape.element_type

    def along(label: str) -> WindowDimension | None:
        return window[int(label)] if label.isdigit() else None

    read, ranges = [], []
    for label, size in zip(of_operand, operand.shape.dimensions, strict=True):
        stride = dimension.stride if (dimension := along(label)) else 1
        read.append(-(-(size or 1) // stride))
        ranges.append(f"[0:{size}:{stride}]")
    matrix = [label for label in of_kernel if not label.isdigit()]
    sizes = [
        size or 1
        for label, size in zip(of_kernel, kernel.shape.dimensions, strict=True)
        if not label.isdigit()
    ]
    product_labels = [label for label in of_operand if label != "f"] + ["f"]
    channels = sizes[matrix.index("o")]
    product = [read[of_operand.index(label)] for label in product_labels[:-1]] + [channels]
    padded, pads = [], []
    for label, size in zip(product_labels, product, strict=True):
        dimension = along(label)
        low, high, inner = (
            (dimension.low, dimension.high, dimension.base_dilation - 1) if dimension else (0, 0, 0)
        )
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
dimensions={integers([product_labels.index(label) for label in labels])}
        """,
        [operand, kernel],
    )
