"""A convolution that treats each channel separately."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import array, integers, put
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo.window import WindowDimension, window_dimensions

_PLAIN = (1, 1, 1, False)  # stride, dilations, reversal


@dataclass(frozen=True, slots=True)
class ShiftDepthwise(Recipe):
    """``most`` is the largest number of positions of a window."""

    most: int = 16
    id: ClassVar = "shift-depthwise"
    title: ClassVar = "a depthwise convolution as a sum of shifted products"
    what: ClassVar = (
        "A convolution has as many groups as channels, a stride of one and a window of at most 16 "
        "positions. For each position, the padded operand is shifted and multiplied by that part "
        "of the kernel, and the products are added."
    )
    why: ClassVar = (
        "Libraries are made for convolutions that mix channels. One that does not is elementwise "
        "without the window, and is fused with its neighbours."
    )
    backfires: ClassVar = (
        "Large windows: each position adds a multiplication. The sum is in another order, so it is "
        "rounded differently."
    )
    backends: ClassVar = frozenset({"cpu", "gpu"})
    tolerance: ClassVar = 1e-6
    example: ClassVar = Example(
        ("f32[8,1024,64]", "f32[4,1,64]"),
        """
def program(values, kernel):
    layout = ("NHC", "HIO", "NHC")
    return lax.conv_general_dilated(
        values, kernel, (1,), [(3, 0)], dimension_numbers=layout, feature_group_count=64
    )
""",
        """
def program(values, kernel):
    padded = jnp.pad(values, ((0, 0), (3, 0), (0, 0)))
    return sum(padded[:, place : place + 1024] * kernel[place, 0] for place in range(4))
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            if instruction.opcode == "convolution" and "dim_labels" in instruction.attributes:
                window = _depthwise_window(instruction)
                if (
                    window is not None
                    and math.prod(dimension.size for dimension in window) <= self.most
                ):
                    yield Site(instruction, partial(_rewrite, instruction, window))


def _depthwise_window(convolution: MutableInstruction) -> tuple[WindowDimension, ...] | None:
    """Return the window of a plain convolution of each channel with its own part of the kernel."""
    operand, kernel = (operand.shape for operand in convolution.operands)
    operand_labels, kernel_labels, labels = _labels(convolution)
    channels = operand.dimensions[operand_labels.index("f")]
    groups = convolution.attribute("feature_group_count") or 1
    window = window_dimensions(convolution.attribute("window") or {})
    is_depthwise = (
        groups == channels == kernel.dimensions[kernel_labels.index("o")]
        and kernel.dimensions[kernel_labels.index("i")] == 1
        and operand.element_type == kernel.element_type == convolution.shape.element_type
        and operand_labels == labels
    )
    is_plain = all(
        (
            dimension.stride,
            dimension.base_dilation,
            dimension.window_dilation,
            dimension.is_reversed,
        )
        == _PLAIN
        and dimension.low >= 0
        and dimension.high >= 0
        for dimension in window
    )
    return window if groups > 1 and is_depthwise and is_plain else None


def _labels(convolution: MutableInstruction) -> tuple[str, str, str]:
    """Return the roles of the dimensions of both operands and of the result."""
    operands, labels = convolution.attributes["dim_labels"].split("->")
    operand, kernel = operands.split("_")
    return operand, kernel, labels


def _rewrite(convolution: MutableInstruction, window: tuple[WindowDimension, ...]) -> None:
    operand, kernel = convolution.operands
    labels, kernel_labels, _ = _labels(convolution)
    kind = operand.shape.element_type
    result = array(kind, convolution.shape.dimensions)
    padding = {str(n): (dimension.low, dimension.high) for n, dimension in enumerate(window)}
    pads = [padding.get(label, (0, 0)) for label in labels]
    sizes = [
        (size or 1) + low + high
        for size, (low, high) in zip(operand.shape.dimensions, pads, strict=True)
    ]
    channels = operand.shape.dimensions[labels.index("f")] or 1
    lines = [
        f"zero = {kind}[] constant(0)",
        f"padded = {array(kind, sizes)} pad(%p0, zero), "
        f"padding={'x'.join(f'{low}_{high}' for low, high in pads)}",
    ]
    total = ""
    for number, places in enumerate(
        itertools.product(*(range(dimension.size) for dimension in window))
    ):
        at = {str(n): place for n, place in enumerate(places)}
        starts = [at.get(label, 0) for label in labels]
        shifted = ", ".join(
            f"[{start}:{start + (size or 1)}]"
            for start, size in zip(starts, convolution.shape.dimensions, strict=True)
        )
        bounds = [
            f"[{at[label]}:{at[label] + 1}]" if label in at else f"[0:{size}]"
            for label, size in zip(kernel_labels, kernel.shape.dimensions, strict=True)
        ]
        part = array(
            kind,
            [
                1 if label in at else size
                for label, size in zip(kernel_labels, kernel.shape.dimensions, strict=True)
            ],
        )
        lines += [
            f"shifted.{number} = {result} slice(padded), slice={{{shifted}}}",
            f"part.{number} = {part} slice(%p1), slice={{{', '.join(bounds)}}}",
            f"factor.{number} = {kind}[{channels}] reshape(part.{number})",
            f"factors.{number} = {result} broadcast(factor.{number}), "
            f"dimensions={integers([labels.index('f')])}",
            f"product.{number} = {result} multiply(shifted.{number}, factors.{number})",
        ]
        if total:
            lines.append(f"sum.{number} = {result} add({total}, product.{number})")
        total = f"sum.{number}" if total else f"product.{number}"
    lines[-1] = f"ROOT {lines[-1]}"
    put(convolution, "\n".join(lines), [operand, kernel])
