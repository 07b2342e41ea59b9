"""Layout normalization as of February 2023."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_and_prune
from fusionscope.hlo.shape import Shape
from fusionscope.user_order.layout_normalization import (
    LayoutNormalizer,
    normalized,
    permutation,
    run_normalizer,
    wide_dimensions,
)

# Operations that the handlers of that time do not know, those that get two bitcasts behind them,
# those whose dimensions are restored, and those that omit the indices of these.
_LEFT = frozenset({"convolution", "iota", "scatter"})
_BEHIND_TWICE = frozenset({"dynamic-slice", "dynamic-update-slice", "reduce-window", "slice"})
_PUT_BACK = frozenset({"concatenate", "dynamic-update-slice", "pad", "reduce-window"})
_AT_INDICES = frozenset({"dynamic-slice", "dynamic-update-slice"})


def normalize_layouts(graph: MutableModule) -> None:
    """Normalize the layouts of all instructions outside of fusions."""
    run_normalizer(LayoutNormalizer2023, graph, spares_bitcasts=False)


class LayoutNormalizer2023(LayoutNormalizer):
    """Visits its own instructions if a later one reads them, and so puts one pair of bitcasts
    behind the other.
    """

    def _visit(self, instruction: MutableInstruction) -> None:
        if instruction.parent is None:
            return
        if instruction.opcode in _LEFT:
            self._surround(instruction)
        elif instruction.opcode != "reduce-window" or instruction.shape.is_array:
            super()._visit(instruction)

    def _normalize_constant(self, constant: MutableInstruction) -> None:
        if constant.shape.is_array:
            normal = self._computation.make("constant", self._normal(constant.shape), [])
            replace_and_prune(constant, self._as(normal, constant.shape))

    def _remake(
        self,
        instruction: MutableInstruction,
        arrays: list[MutableInstruction],
        scalars: list[MutableInstruction],
    ) -> MutableInstruction:
        make, opcode = self._computation.make, instruction.opcode
        shape = self._normal(instruction.shape)
        if opcode in ("copy", "transpose"):
            return make("transpose", shape, arrays, permutation(instruction))
        if opcode in _AT_INDICES:
            sizes = instruction.operands[0].shape.dimensions
            scalars = [scalar for scalar, size in zip(scalars, sizes, strict=True) if size != 1]
        if opcode not in _BEHIND_TWICE:
            return make(opcode, shape, [*arrays, *scalars])
        dimensions = _worked_on(instruction, instruction.operands[0])
        normal = make(opcode, normalized(instruction.shape, dimensions), [*arrays, *scalars])
        return self._as(normal, shape)

    def _normalize_convolution(self, convolution: MutableInstruction) -> None:
        """Source: NormalizeLayoutForCustomCallConvolution."""
        make, results = self._computation.make, convolution.shape.elements
        operands: list[MutableInstruction] = []
        for operand in convolution.operands:
            source, shape = operand.operands[0], normalized(operand.shape)
            operands.append(source if source.shape == shape else make("bitcast", shape, [operand]))
        shapes = (normalized(results[0]), *results[1:])
        shape = replace(convolution.shape, elements=shapes)
        normal = make("custom-call", shape, operands, convolution.attributes_text)
        elements = [make("get-tuple-element", shape, [normal]) for shape in shapes]
        elements[0] = make("bitcast", results[0], [elements[0]])
        replace_and_prune(convolution, make("tuple", convolution.shape, elements))

    def _operand(
        self, instruction: MutableInstruction, operand: MutableInstruction
    ) -> MutableInstruction:
        """Return the normalized array, with the dimensions of 1 that the operation works on."""
        source = self._source(operand)
        if instruction.opcode not in _PUT_BACK:
            return source
        shape = normalized(operand.shape, _worked_on(instruction, operand))
        return source if source.shape == shape else self._as(source, shape)

    def _normal(self, shape: Shape) -> Shape:
        return normalized(shape, wide_dimensions(shape))

    def _mark(self, instruction: MutableInstruction) -> None:
        pass


def _worked_on(instruction: MutableInstruction, operand: MutableInstruction) -> set[int]:
    """Return the dimensions of an operand that the operation works on."""
    if instruction.opcode == "reduce-window":
        return set(range(operand.shape.rank))
    return wide_dimensions(operand.shape) | wide_dimensions(instruction.shape)
