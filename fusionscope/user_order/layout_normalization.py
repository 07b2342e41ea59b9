"""Replays the pass that gives every array the default layout.

It forms no fusions. But its bitcasts, most of which it removes again, leave the users of a value in
an order that no text shows and that later passes depend on. Attributes of new instructions are
omitted. Source: xla/service/layout_normalization.cc, xla/service/gpu/conv_layout_normalization.cc.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fusionscope.graph.layouts import minor_to_major
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    replace_and_prune,
    replace_operand,
)
from fusionscope.graph.visiting import visit
from fusionscope.hlo.opcodes import BINARY, UNARY
from fusionscope.hlo.shape import Shape

# The number of operands that are normalized with it. Other operations have all normalized.
_ARRAYS = {"pad": 1, "reduce-window": 1, "dynamic-slice": 1, "dynamic-update-slice": 2}
_NORMALIZED = (UNARY | BINARY | _ARRAYS.keys()).union(
    """broadcast clamp concatenate convolution iota reshape reverse scatter select slice
    transpose""".split()
)
_CONVOLUTION = "__cudnn$conv"


def normalize_layouts(graph: MutableModule, *, spares_bitcasts: bool = True) -> None:
    """Normalize the layouts of all instructions outside of fusions. Older compilers, which do not
    spare bitcasts, also insert them between equal layouts.
    """
    run_normalizer(LayoutNormalizer, graph, spares_bitcasts=spares_bitcasts)


def run_normalizer(
    kind: type[LayoutNormalizer], graph: MutableModule, *, spares_bitcasts: bool
) -> None:
    for computation in graph.post_order():
        if not computation.is_fused:
            kind(computation, spares_bitcasts=spares_bitcasts).run()


class LayoutNormalizer:
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
        constant.shape = normalized(shape)
        self._computation.replace_uses(constant, self._as(constant, shape))

    def _normalize(self, instruction: MutableInstruction) -> None:
        """Replace an instruction by one between normalized arrays, and a bitcast back."""
        count = _ARRAYS.get(instruction.opcode, len(instruction.operands))
        operands = [self._operand(instruction, operand) for operand in instruction.operands[:count]]
        if instruction.opcode == "transpose" and _keeps_order(instruction):
            (normal,) = operands
        else:
            normal = self._remake(instruction, operands, instruction.operands[count:])
        replace_and_prune(instruction, self._as(normal, instruction.shape))

    def _operand(
        self, instruction: MutableInstruction, operand: MutableInstruction
    ) -> MutableInstruction:
        """Return the normalized array for ``operand``."""
        return self._source(operand)

    def _remake(
        self,
        instruction: MutableInstruction,
        arrays: list[MutableInstruction],
        scalars: list[MutableInstruction],
    ) -> MutableInstruction:
        """Return the same instruction for normalized arrays, with other operands unchanged."""
        opcode = "transpose" if instruction.opcode == "copy" else instruction.opcode
        normal = self._computation.make(opcode, normalized(instruction.shape), [*arrays, *scalars])
        self._mark(normal)
        return normal

    def _surround(self, instruction: MutableInstruction) -> None:
        """Keep an instruction, and add bitcasts to the normalized layout and back after it."""
        users = list(instruction.users)
        is_left = self._spares and _is_normal(instruction)
        if users and not is_left and instruction.shape.is_array:
            normal = self._as(instruction, self._normal(instruction.shape))
            self._mark(normal)
            back = self._as(normal, instruction.shape)
            for user in users:
                replace_operand(user, instruction, back)

    def _normalize_convolution(self, convolution: MutableInstruction) -> None:
        """Source: UpdateLayoutForCudnnConvolution."""
        make = self._computation.make
        operands = [
            make("bitcast", normalized(operand.shape), [operand])
            for operand in convolution.operands
        ]
        results = convolution.shape.elements
        arrays = (*(operand.shape for operand in convolution.operands[:2]), results[0])
        if all(normalized(shape) == shape for shape in arrays):
            return
        shape = replace(convolution.shape, elements=tuple(map(normalized, results)))
        normal = make("custom-call", shape, operands)
        elements = [
            make("bitcast", result, [make("get-tuple-element", normalized(result), [normal])])
            for result in results
        ]
        self._mark(elements[0])
        replace_and_prune(convolution, make("tuple", convolution.shape, elements))

    def _normal(self, shape: Shape) -> Shape:
        return normalized(shape)

    def _mark(self, instruction: MutableInstruction) -> None:
        """Mark an instruction as visited."""
        self._visited.add(instruction)

    def _as(self, instruction: MutableInstruction, shape: Shape) -> MutableInstruction:
        if self._spares and instruction.shape == shape:
            return instruction
        return self._computation.make("bitcast", shape, [instruction])

    def _source(self, operand: MutableInstruction) -> MutableInstruction:
        """Return the normalized array that ``operand`` is a bitcast of."""
        return operand if self._spares and _is_normal(operand) else operand.operands[0]


def permutation(instruction: MutableInstruction) -> str:
    """The attribute of the transpose, or copy, that replaces it between normalized arrays."""
    (operand,) = instruction.operands
    moved = instruction.attribute("dimensions") or range(operand.shape.rank)
    before, after = (
        [place for place in reversed(minor_to_major(shape)) if shape.dimensions[place] != 1]
        for shape in (operand.shape, instruction.shape)
    )
    return f", dimensions={{{','.join(str(before.index(moved[place])) for place in after)}}}"


def wide_dimensions(shape: Shape) -> set[int]:
    """Return the dimensions of more than one element, or of none."""
    return {place for place, size in enumerate(shape.dimensions) if size != 1}


def _around(instruction: MutableInstruction) -> list[MutableInstruction]:
    return [instruction, *instruction.operands]


def normalized(shape: Shape, dimensions: Collection[int] | None = None) -> Shape:
    """Return a shape with (these) dimensions in memory order and the default layout."""
    if not shape.is_array or shape.layout is None:
        return shape
    places = [
        place
        for place in reversed(shape.layout.minor_to_major)
        if dimensions is None or place in dimensions
    ]
    layout = replace(shape.layout, minor_to_major=tuple(reversed(range(len(places)))))
    return replace(
        shape,
        dimensions=tuple(shape.dimensions[place] for place in places),
        dynamic=tuple(shape.dynamic[place] for place in places),
        layout=layout if places else None,  # the text of a scalar has none
    )


def _is_normal(instruction: MutableInstruction) -> bool:
    """Return whether the layout is normal. That of tuples is not."""
    return instruction.shape.is_array and normalized(instruction.shape) == instruction.shape


def _keeps_order(transpose: MutableInstruction) -> bool:
    """Return whether the elements keep their places in memory."""
    dimensions = transpose.attribute("dimensions")
    moved = tuple(dimensions[dimension] for dimension in minor_to_major(transpose.shape))
    return moved == minor_to_major(transpose.operands[0].shape)


def _is_convolution(call: MutableInstruction) -> bool:
    target = str(call.attribute("custom_call_target"))
    return target.startswith(_CONVOLUTION) and call.shape.is_tuple
