"""The rules for operations that the CPU compiler gives to the YNN library, before its own fusion
pass.

Source of all: xla/backends/cpu/transforms/library_rewriter.cc, library_matcher.h, ynn_matcher.h and
xla/backends/cpu/ynn_support.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.shape import Shape
from fusionscope.hlo.window import read_window
from fusionscope.passes.operation import OperationRule
from fusionscope.passes.rule import Decision, Rule, RuleBook

_TYPES = frozenset("s4 u4 s8 u8 bf16 f16 f32 f64 s32".split())
_ELEMENTWISE_TYPES = frozenset("f64 f32 bf16 s8 u8".split())
_UNARY = frozenset(
    """abs ceil convert cosine erf exponential exponential-minus-one floor log log-plus-one logistic
    negate round-nearest-even rsqrt sign sine sqrt tan tanh""".split()
)
_BINARY = frozenset("add divide maximum minimum multiply power subtract".split())
_DATA_MOVES = frozenset("bitcast broadcast constant copy iota pad reshape transpose".split())
_REDUCTIONS = frozenset({"reduce", "reduce-window"})
_LAYOUT_MATTERS = _DATA_MOVES - {"constant"} | _REDUCTIONS | {"convolution", "dot"}


class Starters(Rule):
    __slots__ = ()
    id: ClassVar = "lib-starters"

    def starts(self, operation: MutableInstruction, types: frozenset[str]) -> int | None:
        """Return the turn (0 or 1) in which an operation may begin a fusion, or None."""
        opcode = operation.opcode
        if opcode == "dot":
            return 0 if types & {"DOT", "INDIVIDUAL_DOT"} else None
        if opcode == "convolution":
            return 0 if "INDIVIDUAL_CONVOLUTION" in types else None
        if opcode in _REDUCTIONS:
            return 0 if "REDUCE" in types else None
        is_plain = is_elementwise(operation) and opcode != "constant"
        return 1 if is_plain and "ELTWISE" in types else None


class Individual(Rule):
    __slots__ = ()
    id: ClassVar = "lib-individual"

    def grows(self, starter: MutableInstruction, types: frozenset[str]) -> bool:
        if starter.opcode == "dot":
            return "INDIVIDUAL_DOT" not in types
        return starter.opcode != "convolution" or "INDIVIDUAL_CONVOLUTION" not in types


@dataclass(frozen=True, slots=True)
class Grow(Rule):
    id: ClassVar = "lib-grow"

    limit: int | None = 100


class TrailingMoves(Rule):
    __slots__ = ()
    id: ClassVar = "lib-trailing-moves"

    def takes_out(self, root: MutableInstruction) -> bool:
        return root.opcode in _TRAILING and root.operands[0].opcode != "parameter"


_TRAILING = frozenset({"bitcast", "broadcast", "copy", "reshape"})


@dataclass(frozen=True, slots=True)
class Layout(OperationRule):
    id: ClassVar = "ynn-layout"
    is_legality: ClassVar = True

    max_rank: int = 8

    def check(self, operation: MutableInstruction) -> Decision | None:
        if operation.opcode not in _LAYOUT_MATTERS:
            return None
        count = 2 if operation.opcode in ("convolution", "dot") else 1
        for shape in (operation.shape, *(operand.shape for operand in operation.operands[:count])):
            if not shape.is_array or shape.rank > self.max_rank or not self.is_row_major(shape):
                return self.refuse(shape=str(shape), max_rank=self.max_rank)
        return None

    def is_row_major(self, shape: Shape) -> bool:
        order = shape.layout.minor_to_major if shape.layout else ()
        long = [dimension for dimension in order if shape.dimensions[dimension] != 1]
        return long == sorted(long, reverse=True)


@dataclass(frozen=True, slots=True)
class DataMove(OperationRule):
    id: ClassVar = "ynn-datamove"

    operations: frozenset[str] = _DATA_MOVES

    def check(self, operation: MutableInstruction) -> Decision | None:
        if operation.opcode not in self.operations:
            return None
        element_type = operation.shape.element_type
        is_supported = element_type in _TYPES
        if operation.opcode == "iota":
            is_supported = element_type in ("f32", "s32")
        elif operation.opcode == "broadcast":
            dimensions = operation.attribute("dimensions") or ()
            is_supported &= list(dimensions) == sorted(set(dimensions))
        elif operation.opcode != "constant":
            is_supported &= all(o.shape.element_type == element_type for o in operation.operands)
        if operation.opcode == "pad":
            is_supported &= _is_plain_padding(operation)
        return self.allow() if is_supported else self.refuse(type=element_type)


def _is_plain_padding(pad: MutableInstruction) -> bool:
    sizes = pad.operands[0].shape.dimensions
    text = pad.attributes.get("padding", "")
    for size, padding in zip(sizes, text.split("x") if sizes else (), strict=True):
        low, high, *interior = (int(number) for number in padding.split("_"))
        if (size == 1 and (low or high)) or any(interior):
            return False
    return True


@dataclass(frozen=True, slots=True)
class Preferred(OperationRule):
    id: ClassVar = "ynn-preferred"

    min_elements: int = 4096

    def check(self, operation: MutableInstruction) -> Decision | None:
        if operation.opcode in ("convolution", "dot"):
            return None
        most = max(
            (
                shape.element_count
                for shape in (operation.shape, *(operand.shape for operand in operation.operands))
                if shape.is_array
            ),
            default=0,
        )
        if most < self.min_elements:
            return self.refuse(elements=most, min_elements=self.min_elements)
        return None


def _sizes(shape: Shape) -> list[int]:
    """Return the elements in each dimension; 1 if the number is unknown."""
    return [1 if size is None else size for size in shape.dimensions]


_DOT_TYPES = frozenset(
    tuple(types.split())
    for types in (
        "f64 f64 f64",
        "f32 f32 f32",
        "bf16 bf16 f32",
        "bf16 bf16 bf16",
        "s8 s8 s32",
        "u8 s8 s32",
    )
)


@dataclass(frozen=True, slots=True)
class Dot(OperationRule):
    id: ClassVar = "ynn-dot"

    min_extent: int = 8
    types: frozenset[tuple[str, ...]] = _DOT_TYPES

    def check(self, operation: MutableInstruction) -> Decision | None:
        if operation.opcode != "dot":
            return None
        types = tuple(
            operand.shape.element_type for operand in (*operation.operands[:2], operation)
        )
        if types not in self.types:
            return self.refuse(types=" ".join(types))
        left, right = (operand.shape for operand in operation.operands[:2])
        batch: tuple[int, ...] = operation.attribute("lhs_batch_dims") or ()
        leading = tuple(range(len(batch)))
        if batch != leading or (operation.attribute("rhs_batch_dims") or ()) != leading:
            return self.refuse(batch="not leading")
        rows, columns = _sizes(left)[len(batch) :], _sizes(right)[len(batch) :]
        contracted_left: tuple[int, ...] = operation.attribute("lhs_contracting_dims") or ()
        contracted_right: tuple[int, ...] = operation.attribute("rhs_contracting_dims") or ()
        if (
            max(len(rows), len(columns), operation.shape.rank - len(batch)) > 2
            or len(contracted_left) != 1
            or len(contracted_right) != 1
            or contracted_left[0] != left.rank - 1
        ):
            return self.refuse(contracted="not the last dimension of a matrix")
        k = rows.pop()
        del columns[contracted_right[0] - len(batch)]
        m, n = (rows or [1])[0], (columns or [1])[0]
        if m == 1 or n == 1:
            return self.refuse(rows=m, columns=n)
        if max(m, n, k) < self.min_extent:
            return self.refuse(rows=m, columns=n, contracted=k, min_extent=self.min_extent)
        return self.allow(rows=m, columns=n, contracted=k)


@dataclass(frozen=True, slots=True)
class Reduce(OperationRule):
    id: ClassVar = "ynn-reduce"

    max_rank: int = 8

    def check(self, operation: MutableInstruction) -> Decision | None:
        if operation.opcode not in _REDUCTIONS:
            return None
        if len(operation.operands) != 2:
            return self.refuse(operands=len(operation.operands))
        source, start = (operand.shape.element_type for operand in operation.operands)
        result = operation.shape.element_type
        if operation.opcode == "reduce":
            is_shaped = bool(operation.attribute("dimensions"))
        else:
            is_shaped = self._is_tiling(operation)
        reducer = operation.called[0].root
        is_typed = self.is_typed(reducer.opcode, source, result)
        if is_shaped and is_typed and start == result and _takes_both(reducer):
            return self.allow()
        return self.refuse(reducer=reducer.opcode, types=f"{source} {start} {result}")

    def is_typed(self, reducer: str, source: str, result: str) -> bool:
        if reducer == "add":
            return source in _SUMMED.get(result, ())
        return reducer in ("maximum", "minimum") and source == result in _COMPARED

    def _is_tiling(self, operation: MutableInstruction) -> bool:
        window = read_window(operation.attributes.get("window", ""))
        moving = [dimension for dimension in window if dimension.size > 1 or dimension.stride > 1]
        return 0 < len(moving) <= self.max_rank - operation.shape.rank and not any(
            (dimension.size > 1 and dimension.stride != dimension.size)
            or dimension.base_dilation != 1
            or dimension.window_dilation != 1
            or dimension.is_reversed
            for dimension in moving
        )


_SUMMED = {
    "f64": frozenset({"f64"}),
    "f32": frozenset({"f32", "f16", "bf16"}),
    "s32": frozenset({"s8", "u8"}),
}
_COMPARED = frozenset("u8 s8 bf16 f16 f32 f64".split())


def _takes_both(reducer: MutableInstruction) -> bool:
    """Return whether a reducer reads the two parameters of its computation directly."""
    return {operand.inside for operand in reducer.operands if operand.opcode == "parameter"} == {
        "0",
        "1",
    }


@dataclass(frozen=True, slots=True)
class Convolution(OperationRule):
    id: ClassVar = "ynn-conv"

    max_features: int = 16

    def check(self, operation: MutableInstruction) -> Decision | None:
        if operation.opcode != "convolution":
            return None
        types = tuple(operand.shape.element_type for operand in (*operation.operands, operation))
        labels = operation.attributes.get("dim_labels", "")
        window = read_window(operation.attributes.get("window", ""))
        if (
            types not in _CONVOLUTION_TYPES
            or labels != "b01f_01io->b01f"
            or any(operand.shape.rank != 4 for operand in (*operation.operands, operation))
            or (operation.attribute("batch_group_count") or 1) != 1
            or any(dimension.base_dilation != 1 or dimension.is_reversed for dimension in window)
        ):
            return self.refuse(types=" ".join(types), labels=labels)
        image, kernel = (_sizes(operand.shape) for operand in operation.operands)
        result = _sizes(operation.shape)
        features = max(image[3], result[3])
        if features <= self.max_features:
            return self.refuse(features=features, max_features=self.max_features)
        for spatial in (0, 1):
            extent = image[1 + spatial]
            if result[1 + spatial] > extent or kernel[spatial] > extent:
                return self.refuse(input=extent, dimension=spatial)
        return self.allow(features=features)


_CONVOLUTION_TYPES = frozenset(
    tuple(types.split()) for types in ("f64 f64 f64", "f32 f32 f32", "s8 s8 s32")
)


@dataclass(frozen=True, slots=True)
class Elementwise(OperationRule):
    id: ClassVar = "ynn-elementwise"
    is_legality: ClassVar = True

    unary: frozenset[str] = _UNARY

    def check(self, operation: MutableInstruction) -> Decision | None:
        types = {operand.shape.element_type for operand in (*operation.operands, operation)}
        opcodes = {1: self.unary, 2: _BINARY}.get(len(operation.operands), frozenset())
        if operation.opcode in opcodes and types <= _ELEMENTWISE_TYPES:
            return self.allow()
        return self.refuse(operation=operation.opcode, types=" ".join(sorted(types)))


YNN: RuleBook[Rule] = RuleBook(
    "cpu-ynn",
    "dot-library-rewriter",
    "cpu",
    (
        Starters(),
        Individual(),
        Grow(),
        TrailingMoves(),
        Layout(),
        DataMove(),
        Preferred(),
        Dot(),
        Reduce(),
        Convolution(),
        Elementwise(),
    ),
)
