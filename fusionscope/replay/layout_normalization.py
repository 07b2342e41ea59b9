"""Replays the pass that gives every array the layout of its dimensions' order.

It forms no fusions, but the bitcasts that it makes, most of which are gone again when it is done,
leave the users of a value in an order that no text shows and that later passes go by. Attributes
of what it makes are left out. Source: xla/service/layout_normalization.cc,
xla/service/gpu/conv_layout_normalization.cc.
"""

from __future__ import annotations

from dataclasses import replace

from fusionscope.hlo.shape import Shape
from fusionscope.replay.visiting import visit
from fusionscope.rules.graph import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    replace_operand,
    supersede,
)
from fusionscope.rules.layouts import minor_to_major
from fusionscope.rules.properties import BINARY, UNARY

# How many of its operands are normalized with it; of others all are.
_ARRAYS = {"pad": 1, "reduce-window": 1, "dynamic-slice": 1, "dynamic-update-slice": 2}
_NORMALIZED = (UNARY | BINARY | _ARRAYS.keys()).union(
    """broadcast clamp concatenate convolution iota reshape reverse scatter select slice
    transpose""".split()
)
_CONVOLUTION = "__cudnn$conv"


def normalize_layouts(graph: MutableModule, *, spares_bitcasts: bool = True) -> None:
    """Normalizes the layouts of all that is not in fusions. Older compilers, which do not
    spare bitcasts, make them between equal layouts too."""
    for computation in graph.post_order():
        if not computation.is_fused:
            _Normalizer(computation, spares_bitcasts=spares_bitcasts).run()


class _Normalizer:
    """Source: LayoutNormalizationVisitor."""

    def __init__(self, computation: MutableComputation, *, spares_bitcasts: bool) -> None:
        self._computation = computation
        self._spares = spares_bitcasts
        self._visited: set[MutableInstruction] = set()

    def run(self) -> None:
        visit(self._computation, self._visit, self._visited)

    def _visit(self, instruction: MutableInstruction) -> None:
        if instruction.parent is None:
            return
        if self._spares and all(map(_is_normal, _around(instruction))):
            return
        if instruction.opcode == "constant":
            self._normalize_constant(instruction)
        elif instruction.opcode == "custom-call" and _is_convolution(instruction):
            self._normalize_convolution(instruction)
        elif instruction.opcode in _NORMALIZED and instruction.shape.is_array:
            self._normalize(instruction)
        else:
            self._surround(instruction)

    def _normalize_constant(self, constant: MutableInstruction) -> None:
        shape = constant.shape
        constant.shape = _normalized(shape)
        self._computation.replace_uses(constant, self._as(constant, shape))

    def _normalize(self, instruction: MutableInstruction) -> None:
        """Makes another one between normalized arrays, and a bitcast back."""
        count = _ARRAYS.get(instruction.opcode, len(instruction.operands))
        operands = [self._source(each) for each in instruction.operands[:count]]
        operands += instruction.operands[count:]
        shape = _normalized(instruction.shape)
        if instruction.opcode == "transpose" and _keeps_order(instruction):
            (normal,) = operands
        else:
            opcode = "transpose" if instruction.opcode == "copy" else instruction.opcode
            normal = self._computation.make(opcode, shape, operands)
            self._visited.add(normal)
        supersede(instruction, self._as(normal, instruction.shape))

    def _surround(self, instruction: MutableInstruction) -> None:
        """Leaves it, and makes bitcasts to the normalized layout and back behind it."""
        users = list(instruction.users)
        is_left = self._spares and _is_normal(instruction)
        if users and not is_left and instruction.shape.is_array:
            normal = self._as(instruction, _normalized(instruction.shape))
            self._visited.add(normal)
            back = self._as(normal, instruction.shape)
            for user in users:
                replace_operand(user, instruction, back)

    def _normalize_convolution(self, convolution: MutableInstruction) -> None:
        """Source: UpdateLayoutForCudnnConvolution."""
        make = self._computation.make
        operands = [
            make("bitcast", _normalized(each.shape), [each]) for each in convolution.operands
        ]
        results = convolution.shape.elements
        arrays = (*(each.shape for each in convolution.operands[:2]), results[0])
        if all(_normalized(shape) == shape for shape in arrays):
            return
        shape = replace(convolution.shape, elements=tuple(map(_normalized, results)))
        normal = make("custom-call", shape, operands)
        elements = [
            make("bitcast", result, [make("get-tuple-element", _normalized(result), [normal])])
            for result in results
        ]
        self._visited.add(elements[0])
        supersede(convolution, make("tuple", convolution.shape, elements))

    def _as(self, instruction: MutableInstruction, shape: Shape) -> MutableInstruction:
        if self._spares and instruction.shape == shape:
            return instruction
        return self._computation.make("bitcast", shape, [instruction])

    def _source(self, operand: MutableInstruction) -> MutableInstruction:
        """The normalized array of which it is a bitcast."""
        return operand if self._spares and _is_normal(operand) else operand.operands[0]


def _around(instruction: MutableInstruction) -> list[MutableInstruction]:
    return [instruction, *instruction.operands]


def _normalized(shape: Shape) -> Shape:
    """With the dimensions in the order in which they lie in memory, and the layout of that."""
    if not shape.is_array or shape.layout is None:
        return shape
    order = shape.layout.minor_to_major
    dimensions = tuple(shape.dimensions[dimension] for dimension in reversed(order))
    layout = replace(shape.layout, minor_to_major=tuple(reversed(range(shape.rank))))
    return replace(shape, dimensions=dimensions, layout=layout)


def _is_normal(instruction: MutableInstruction) -> bool:
    """Tuples are not."""
    return instruction.shape.is_array and _normalized(instruction.shape) == instruction.shape


def _keeps_order(transpose: MutableInstruction) -> bool:
    """Whether the elements stay where they lie."""
    dimensions = transpose.attribute("dimensions")
    moved = tuple(dimensions[dimension] for dimension in minor_to_major(transpose.shape))
    return moved == minor_to_major(transpose.operands[0].shape)


def _is_convolution(call: MutableInstruction) -> bool:
    target = str(call.attribute("custom_call_target"))
    return target.startswith(_CONVOLUTION) and call.shape.is_tuple
