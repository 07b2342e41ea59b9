"""Replays the pass that gives every array the layout of its dimensions' order.

It forms no fusions, but the bitcasts that it makes, most of which are gone again when it is done,
leave the users of a value in an order that no text shows and that later passes go by. Attributes
of what it makes are left out. Source: xla/service/layout_normalization.cc,
xla/service/gpu/conv_layout_normalization.cc.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fusionscope.graph.layouts import minor_to_major
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    replace_operand,
    supersede,
)
from fusionscope.graph.visiting import visit
from fusionscope.hlo.opcodes import BINARY, UNARY
from fusionscope.hlo.shape import Shape

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
    _run(_Normalizer, graph, spares_bitcasts=spares_bitcasts)


def normalize_layouts_of_2023(graph: MutableModule) -> None:
    """The same as early in 2023."""
    _run(_EarlyNormalizer, graph, spares_bitcasts=False)


def _run(kind: type[_Normalizer], graph: MutableModule, *, spares_bitcasts: bool) -> None:
    for computation in graph.post_order():
        if not computation.is_fused:
            kind(computation, spares_bitcasts=spares_bitcasts).run()


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
        operands = [self._operand(instruction, each) for each in instruction.operands[:count]]
        if instruction.opcode == "transpose" and _keeps_order(instruction):
            (normal,) = operands
        else:
            normal = self._remake(instruction, operands, instruction.operands[count:])
        supersede(instruction, self._as(normal, instruction.shape))

    def _operand(
        self, instruction: MutableInstruction, operand: MutableInstruction
    ) -> MutableInstruction:
        """The normalized array in the place of ``operand``."""
        return self._source(operand)

    def _remake(
        self,
        instruction: MutableInstruction,
        arrays: list[MutableInstruction],
        others: list[MutableInstruction],
    ) -> MutableInstruction:
        """The same of normalized arrays, and the operands that are left as they are."""
        opcode = "transpose" if instruction.opcode == "copy" else instruction.opcode
        normal = self._computation.make(opcode, _normalized(instruction.shape), [*arrays, *others])
        self._mark(normal)
        return normal

    def _surround(self, instruction: MutableInstruction) -> None:
        """Leaves it, and makes bitcasts to the normalized layout and back behind it."""
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
        self._mark(elements[0])
        supersede(convolution, make("tuple", convolution.shape, elements))

    def _normal(self, shape: Shape) -> Shape:
        return _normalized(shape)

    def _mark(self, made: MutableInstruction) -> None:
        """It is not to be visited."""
        self._visited.add(made)

    def _as(self, instruction: MutableInstruction, shape: Shape) -> MutableInstruction:
        if self._spares and instruction.shape == shape:
            return instruction
        return self._computation.make("bitcast", shape, [instruction])

    def _source(self, operand: MutableInstruction) -> MutableInstruction:
        """The normalized array of which it is a bitcast."""
        return operand if self._spares and _is_normal(operand) else operand.operands[0]


class _EarlyNormalizer(_Normalizer):
    """As of February 2023, which visits what it made where something that comes later reads it, and
    so puts one pair of bitcasts behind the other."""

    def _visit(self, instruction: MutableInstruction) -> None:
        if instruction.parent is None:
            return
        if instruction.opcode in _LEFT_IN_2023:
            self._surround(instruction)
        elif instruction.opcode != "reduce-window" or instruction.shape.is_array:
            super()._visit(instruction)

    def _normalize_constant(self, constant: MutableInstruction) -> None:
        if constant.shape.is_array:
            normal = self._computation.make("constant", self._normal(constant.shape), [])
            supersede(constant, self._as(normal, constant.shape))

    def _remake(
        self,
        instruction: MutableInstruction,
        arrays: list[MutableInstruction],
        others: list[MutableInstruction],
    ) -> MutableInstruction:
        make, opcode = self._computation.make, instruction.opcode
        shape = self._normal(instruction.shape)
        if opcode in ("copy", "transpose"):
            return make("transpose", shape, arrays, _permutation(instruction))
        if opcode in _AT_INDICES:
            sizes = instruction.operands[0].shape.dimensions
            others = [each for each, size in zip(others, sizes, strict=True) if size != 1]
        if opcode not in _BEHIND_TWICE:
            return make(opcode, shape, [*arrays, *others])
        kept = _worked_on(instruction, instruction.operands[0])
        normal = make(opcode, _normalized(instruction.shape, kept), [*arrays, *others])
        return self._as(normal, shape)

    def _normalize_convolution(self, convolution: MutableInstruction) -> None:
        """Source: NormalizeLayoutForCustomCallConvolution."""
        make, results = self._computation.make, convolution.shape.elements
        operands: list[MutableInstruction] = []
        for operand in convolution.operands:
            source, shape = operand.operands[0], _normalized(operand.shape)
            operands.append(source if source.shape == shape else make("bitcast", shape, [operand]))
        shapes = (_normalized(results[0]), *results[1:])
        shape = replace(convolution.shape, elements=shapes)
        normal = make("custom-call", shape, operands, convolution.attributes_text)
        elements = [make("get-tuple-element", each, [normal]) for each in shapes]
        elements[0] = make("bitcast", results[0], [elements[0]])
        supersede(convolution, make("tuple", convolution.shape, elements))

    def _operand(
        self, instruction: MutableInstruction, operand: MutableInstruction
    ) -> MutableInstruction:
        """The normalized array, with the dimensions of one element that it works on put back."""
        source = self._source(operand)
        if instruction.opcode not in _PUT_BACK:
            return source
        shape = _normalized(operand.shape, _worked_on(instruction, operand))
        return source if source.shape == shape else self._as(source, shape)

    def _normal(self, shape: Shape) -> Shape:
        return _normalized(shape, _wide(shape))

    def _mark(self, made: MutableInstruction) -> None:
        pass


# What the handlers of that time do not know, what they put two bitcasts behind, what they put
# dimensions back for, and what leaves out the indices of those.
_LEFT_IN_2023 = frozenset({"convolution", "iota", "scatter"})
_BEHIND_TWICE = frozenset({"dynamic-slice", "dynamic-update-slice", "reduce-window", "slice"})
_PUT_BACK = frozenset({"concatenate", "dynamic-update-slice", "pad", "reduce-window"})
_AT_INDICES = frozenset({"dynamic-slice", "dynamic-update-slice"})


def _worked_on(instruction: MutableInstruction, operand: MutableInstruction) -> set[int]:
    """The dimensions that an operand has in it."""
    if instruction.opcode == "reduce-window":
        return set(range(operand.shape.rank))
    return _wide(operand.shape) | _wide(instruction.shape)


def _permutation(instruction: MutableInstruction) -> str:
    """The attribute of what stands for a transpose, or a copy, between normalized arrays."""
    (operand,) = instruction.operands
    moved = instruction.attribute("dimensions") or range(operand.shape.rank)
    before, after = (
        [place for place in reversed(minor_to_major(each)) if each.dimensions[place] != 1]
        for each in (operand.shape, instruction.shape)
    )
    return f", dimensions={{{','.join(str(before.index(moved[place])) for place in after)}}}"


def _wide(shape: Shape) -> set[int]:
    """The dimensions of more than one element, or of none."""
    return {place for place, size in enumerate(shape.dimensions) if size != 1}


def _around(instruction: MutableInstruction) -> list[MutableInstruction]:
    return [instruction, *instruction.operands]


def _normalized(shape: Shape, kept: Collection[int] | None = None) -> Shape:
    """With the dimensions, or those ``kept``, in the order in which they lie in memory, and the
    layout of that."""
    if not shape.is_array or shape.layout is None:
        return shape
    places = [
        place for place in reversed(shape.layout.minor_to_major) if kept is None or place in kept
    ]
    layout = replace(shape.layout, minor_to_major=tuple(reversed(range(len(places)))))
    return replace(
        shape,
        dimensions=tuple(shape.dimensions[place] for place in places),
        dynamic=tuple(shape.dynamic[place] for place in places),
        layout=layout if places else None,  # as the text of a number has it
    )


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
