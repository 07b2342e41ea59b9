"""Infers the shapes of results that a text omits, as the compiler's parser does.

Source: xla/service/shape_inference.cc; for the operations, `CanInferShape` in
xla/hlo/parser/hlo_parser.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from fusionscope.hlo.attributes import read_value
from fusionscope.hlo.shape import TUPLE, Layout, Shape
from fusionscope.hlo.window import read_window

_COMPLEX_PARTS = {"c64": "f32", "c128": "f64"}
_COMPLEX = {part: whole for whole, part in _COMPLEX_PARTS.items()}


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation without a shape: the shapes of its operands and of the results of its called
    computations, and its attributes, verbatim.
    """

    opcode: str
    operands: list[Shape]
    called: list[Shape]
    attributes: dict[str, str]

    @property
    def first(self) -> Shape:
        return self.operands[0]

    @property
    def dimensions(self) -> tuple[int, ...]:
        return self.integers("dimensions")

    def value(self, key: str) -> Any:
        return read_value(key, self.attributes[key]) if key in self.attributes else None

    def integer(self, key: str, default: int) -> int:
        value = self.value(key)
        return value if isinstance(value, int) else default

    def integers(self, key: str) -> tuple[int, ...]:
        value = self.value(key)
        if not isinstance(value, tuple):
            return ()
        if any(number < 0 for number in value):
            raise ValueError
        return value


def infer_shape(operation: Operation) -> Shape | None:
    """Return the shape of the result, or None if the compiler cannot infer it either."""
    infer = _RULES.get(operation.opcode)
    if infer is None:
        return None
    try:
        return infer(operation)
    except (ArithmeticError, LookupError, ValueError):
        return None  # operands and attributes contradict each other


def _tuple(shapes: Iterable[Shape]) -> Shape:
    return Shape(TUPLE, elements=tuple(shapes))


def _array(element_type: str, sizes: Iterable[int | None], dynamic: Iterable[bool] = ()) -> Shape:
    sizes = tuple(sizes)
    return Shape(element_type, sizes, tuple(dynamic) or (False,) * len(sizes))


def _kept(shape: Shape, dimensions: Iterable[int]) -> Shape:
    """Return an array of some dimensions of ``shape``."""
    dimensions = tuple(dimensions)
    return _array(
        shape.element_type,
        (shape.dimensions[dimension] for dimension in dimensions),
        (shape.dynamic[dimension] for dimension in dimensions),
    )


def _wider(first: Shape, second: Shape) -> str:
    """Return the element type of a product of two arrays."""
    if first.element_type == second.element_type:
        return first.element_type
    kinds = {shape.element_type.lstrip("b")[0] for shape in (first, second)}
    if len(kinds) > 1 or first.bits == second.bits:
        raise ValueError
    return max(first, second, key=lambda shape: shape.bits).element_type


def _size(shape: Shape, dimension: int) -> int:
    size = shape.dimensions[dimension]
    if size is None:
        raise ValueError
    return size


def _first(operation: Operation) -> Shape:
    return operation.first


def _second(operation: Operation) -> Shape:
    return operation.operands[1]


def _called(operation: Operation) -> Shape:
    return operation.called[0]


def _elementwise(operation: Operation) -> Shape | None:
    arrays = [shape for shape in operation.operands if shape.dimensions] or operation.operands[:1]
    first = arrays[0]
    if any(shape.dimensions != first.dimensions for shape in arrays) or not all(
        shape.is_array for shape in operation.operands
    ):
        return None
    return replace(first, element_type=_wider(*operation.operands[:2])) if arrays[1:] else first


def _part(operation: Operation) -> Shape:
    """Return the shape of a complex number's parts or absolute value."""
    part = _COMPLEX_PARTS.get(operation.first.element_type, operation.first.element_type)
    return replace(operation.first, element_type=part)


def _complex(operation: Operation) -> Shape | None:
    parts = _elementwise(operation)
    return parts and replace(parts, element_type=_COMPLEX[parts.element_type])


def _compare(operation: Operation) -> Shape | None:
    if operation.operands[1:] and operation.first.dimensions != operation.operands[1].dimensions:
        return None
    return replace(operation.first, element_type="pred")


def _select(operation: Operation) -> Shape | None:
    condition, on_true, on_false = operation.operands
    if on_true.dimensions != on_false.dimensions or condition.dimensions not in (
        (),
        on_true.dimensions,
    ):
        return None
    return on_true


def _element(operation: Operation) -> Shape | None:
    index, elements = operation.value("index"), operation.first.elements
    return elements[index] if index in range(len(elements)) else None


def _sort(operation: Operation) -> Shape:
    return _tuple(operation.operands) if operation.operands[1:] else operation.first


def _transpose(operation: Operation) -> Shape | None:
    first, dimensions = operation.first, operation.dimensions
    if sorted(dimensions) != list(range(first.rank)):
        return None
    layout = first.layout or Layout(tuple(reversed(range(first.rank))))
    order = tuple(dimensions.index(dimension) for dimension in layout.minor_to_major)
    return replace(_kept(first, dimensions), layout=replace(layout, minor_to_major=order))


def _broadcast(operation: Operation) -> Shape:
    # The parser reads the dimensions as the sizes that are prepended.
    first = operation.first
    sizes = operation.dimensions
    return _array(
        first.element_type,
        (*sizes, *first.dimensions),
        (*(False for _ in sizes), *first.dynamic),
    )


def _concatenate(operation: Operation) -> Shape:
    (dimension,) = operation.dimensions
    sizes = list(operation.first.dimensions)
    sizes[dimension] = sum(_size(shape, dimension) for shape in operation.operands)
    dynamic = (
        any(shape.dynamic[index] for shape in operation.operands) for index in range(len(sizes))
    )
    return _array(operation.first.element_type, sizes, dynamic)


def _pad(operation: Operation) -> Shape:
    sizes: list[int | None] = []
    for index, (low, high, *interior) in enumerate(operation.value("padding") or ()):
        size = _size(operation.first, index)
        sizes.append(size + low + high + max(size - 1, 0) * (interior[0] if interior else 0))
    if len(sizes) != operation.first.rank or any(size is None or size < 0 for size in sizes):
        raise ValueError
    return _array(operation.first.element_type, sizes, operation.first.dynamic)


def _reduce(operation: Operation) -> Shape:
    remaining = [
        index for index in range(operation.first.rank) if index not in operation.dimensions
    ]
    array = _kept(operation.first, remaining)
    result = operation.called[0]
    if result.is_tuple:
        return _tuple(replace(array, element_type=part.element_type) for part in result.elements)
    return replace(array, element_type=result.element_type)


def _slid(operation: Operation, sizes: Iterable[int]) -> list[int]:
    """Return the sizes of the result of a window that slides over dimensions of ``sizes``."""
    counts = []
    window = read_window(operation.attributes.get("window", ""))
    for size, dimension in zip(sizes, window, strict=True):
        dilated = max((size - 1) * dimension.base_dilation + 1, 0) if size else 0
        covered = (dimension.size - 1) * dimension.window_dilation + 1
        room = dilated + dimension.low + dimension.high - covered
        counts.append(room // dimension.stride + 1 if room >= 0 else 0)
    return counts


def _reduce_window(operation: Operation) -> Shape:
    first, start = operation.operands[:2]
    sizes = [_size(first, index) for index in range(first.rank)]
    if "window" not in operation.attributes:
        return first
    return _array(start.element_type, _slid(operation, sizes), first.dynamic)


def _convolution(operation: Operation) -> Shape:
    left, right = operation.operands[:2]
    labels, _, into = operation.attributes["dim_labels"].partition("->")
    of_left, _, of_right = labels.partition("_")
    spatial = sorted(label for label in of_left if label.isdigit())
    slid = _slid(operation, (_size(left, of_left.index(label)) for label in spatial))
    sizes = dict(zip(spatial, slid, strict=True))
    sizes["b"] = _size(left, of_left.index("b")) // operation.integer("batch_group_count", 1)
    sizes["f"] = _size(right, of_right.index("o"))
    return _array(_wider(left, right), (sizes[label] for label in into.strip()))


def _dot(operation: Operation) -> Shape:
    left, right = operation.operands[:2]
    batch = operation.integers("lhs_batch_dims"), operation.integers("rhs_batch_dims")
    contracted = (
        operation.integers("lhs_contracting_dims"),
        operation.integers("rhs_contracting_dims"),
    )
    shared = [[_size(left, d) for d in dims[0]] for dims in (batch, contracted)]
    if shared != [[_size(right, d) for d in dims[1]] for dims in (batch, contracted)]:
        raise ValueError
    sides = [
        _kept(side, (d for d in range(side.rank) if d not in (*batch[index], *contracted[index])))
        for index, side in enumerate((left, right))
    ]
    in_batch = _kept(left, batch[0])
    parts = (in_batch, *sides)
    return _array(
        _wider(left, right),
        (size for part in parts for size in part.dimensions),
        (dynamic for part in parts for dynamic in part.dynamic),
    )


def _scaled_dot(operation: Operation) -> Shape:
    return _dot(replace(operation, operands=[operation.operands[0], operation.operands[2]]))


def _fft(operation: Operation) -> Shape | None:
    kind, length = operation.attributes["fft_type"], operation.integers("fft_length")
    first, *sizes = operation.first, *operation.first.dimensions
    if kind in ("FFT", "IFFT"):
        return first
    if kind == "RFFT":
        sizes[-1] = length[-1] // 2 + 1 if length[-1] else 0
        return _array(_COMPLEX[first.element_type], sizes, first.dynamic)
    if kind == "IRFFT":
        sizes[-1] = length[-1]
        return _array(_COMPLEX_PARTS[first.element_type], sizes, first.dynamic)
    return None


def _top(operation: Operation) -> Shape:
    sizes = (*operation.first.dimensions[:-1], operation.integer("k", 0))
    return _tuple(_array(kind, sizes) for kind in (operation.first.element_type, "s32"))


def _map(operation: Operation) -> Shape:
    return _array(operation.called[0].element_type, operation.first.dimensions)


def _scan(operation: Operation) -> Shape:
    (dimension,) = operation.dimensions
    size = operation.first.dimensions[dimension]
    result, carries = operation.called[0], operation.integer("num_carries", 0)

    def stacked(shape: Shape) -> Shape:
        sizes = (*shape.dimensions[:dimension], size, *shape.dimensions[dimension:])
        return _array(shape.element_type, sizes)

    if not result.is_tuple:
        return result if carries else stacked(result)
    outputs = len(result.elements) - carries
    return _tuple(
        stacked(shape) if index < outputs else shape for index, shape in enumerate(result.elements)
    )


def _gather(operation: Operation) -> Shape:
    operand, indices = operation.operands
    offsets = operation.integers("offset_dims")
    dropped = {
        *operation.integers("collapsed_slice_dims"),
        *operation.integers("operand_batching_dims"),
    }
    window = [
        size for index, size in enumerate(operation.integers("slice_sizes")) if index not in dropped
    ]
    vector = operation.integer("index_vector_dim", indices.rank)
    batch = [size for index, size in enumerate(indices.dimensions) if index != vector]
    rank = len(window) + len(batch)
    sizes = [window.pop(0) if index in offsets else batch.pop(0) for index in range(rank)]
    return _array(operand.element_type, sizes)


def _scatter(operation: Operation) -> Shape:
    operands = operation.operands[: len(operation.operands) // 2]
    return _tuple(operands) if operands[1:] else operands[0]


def _batch_norm(operation: Operation) -> Shape:
    feature = _kept(operation.first, [operation.integer("feature_index", 0)])
    return _tuple((operation.first, feature, feature))


def _dynamic(operation: Operation) -> Shape:
    (dimension,) = operation.dimensions
    dynamic = list(operation.first.dynamic)
    dynamic[dimension] = True
    return replace(operation.first, dynamic=tuple(dynamic))


_RULES: dict[str, Callable[[Operation], Shape | None]] = {
    **dict.fromkeys(
        """acos acosh asin asinh atanh cbrt ceil cosine cosh count-leading-zeros erf exponential
        exponential-minus-one floor log log-plus-one logistic negate not popcnt round-nearest-afz
        round-nearest-even rsqrt sign sine sinh sqrt tan tanh add-dependency batch-norm-inference
        cholesky copy domain reverse select-and-scatter while""".split(),
        _first,
    ),
    **dict.fromkeys(
        """add and atan2 divide maximum minimum mulhi multiply or power remainder shift-left
        shift-right-arithmetic shift-right-logical subtract xor""".split(),
        _elementwise,
    ),
    **dict.fromkeys(("abs", "imag", "real"), _part),
    **dict.fromkeys(("call", "conditional"), _called),
    **dict.fromkeys(("clamp", "triangular-solve"), _second),
    **dict.fromkeys(("compare", "is-finite"), _compare),
    **dict.fromkeys(("partition-id", "replica-id"), lambda _: Shape("u32")),
    **dict.fromkeys(("batch-norm-grad", "batch-norm-training"), _batch_norm),
    "after-all": lambda _: Shape("token"),
    "broadcast": _broadcast,
    "complex": _complex,
    "concatenate": _concatenate,
    "convolution": _convolution,
    "dot": _dot,
    "fft": _fft,
    "gather": _gather,
    "get-dimension-size": lambda _: Shape("s32"),
    "get-tuple-element": _element,
    "map": _map,
    "pad": _pad,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "scaled-dot": _scaled_dot,
    "scan": _scan,
    "scatter": _scatter,
    "select": _select,
    "set-dimension-size": _dynamic,
    "sort": _sort,
    "topk": _top,
    "transpose": _transpose,
    "tuple": lambda operation: _tuple(operation.operands),
}
