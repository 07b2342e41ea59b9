"""Writes bitcasts, which a program cannot contain, as operations that it can."""

from __future__ import annotations

from fusionscope.graph.layouts import minor_to_major
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo.shape import Layout, Shape


def write_bitcasts(graph: MutableModule) -> None:
    """Replace all bitcasts of ``graph``."""
    for computation in graph.post_order():
        for instruction in computation.post_order():
            if instruction.opcode == "bitcast":
                computation.replace(instruction, view(instruction.operands[0], instruction.shape))


def view(source: MutableInstruction, shape: Shape) -> MutableInstruction:
    """Return ``source`` in ``shape``, in the order in memory, by transposes and a reshape."""
    computation, value = source.computation, source
    if source.shape.element_type != shape.element_type:
        return computation.make("bitcast-convert", shape, [source])
    order = _major_to_minor(source.shape)
    if order != sorted(order):
        value = _transpose(value, order)
    order = _major_to_minor(shape)
    sizes = tuple(shape.dimensions[dimension] for dimension in order)
    if sizes != value.shape.dimensions:
        value = computation.make("reshape", _array(shape, sizes), [value])
    if order != sorted(order):
        value = _transpose(value, [order.index(dimension) for dimension in range(len(order))])
    return computation.make("reshape", shape, [value]) if value is source else value


def _major_to_minor(shape: Shape) -> list[int]:
    return list(reversed(minor_to_major(shape)))


def _transpose(value: MutableInstruction, order: list[int]) -> MutableInstruction:
    sizes = tuple(value.shape.dimensions[dimension] for dimension in order)
    dimensions = ",".join(map(str, order))
    return value.computation.make(
        "transpose", _array(value.shape, sizes), [value], f", dimensions={{{dimensions}}}"
    )


def _array(like: Shape, sizes: tuple[int | None, ...]) -> Shape:
    layout = Layout(tuple(reversed(range(len(sizes))))) if sizes else None  # as printed
    return Shape(like.element_type, sizes, (False,) * len(sizes), layout)
