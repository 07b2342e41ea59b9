"""Writes operations of HLO as expressions in JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fusionscope.advise.recipes.patterns import combiner
from fusionscope.errors import UnusableInput, quoted
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.attributes import read_slice
from fusionscope.hlo.literals import is_elided
from fusionscope.hlo.shape import Shape
from fusionscope.hlo.window import read_window

# The names of the number of programs that share the work, and of the number of one of them.
STEPS, STEP = "steps", "step"

_INFIX = {
    **{"add": "+", "subtract": "-", "multiply": "*", "and": "&", "or": "|", "xor": "^"},
    **{"EQ": "==", "NE": "!=", "GT": ">", "GE": ">=", "LT": "<", "LE": "<="},
}
_OF_LAX = {
    **{
        name: name
        for name in "cbrt ceil erf floor imag logistic real rsqrt sign sqrt tan tanh".split()
    },
    **{name: name for name in "atan2 clamp complex cos exp log sin".split()},
    "abs": "abs",
    "count-leading-zeros": "clz",
    "cosine": "cos",
    "divide": "div",
    "exponential": "exp",
    "exponential-minus-one": "expm1",
    "is-finite": "is_finite",
    "log-plus-one": "log1p",
    "maximum": "max",
    "minimum": "min",
    "popcnt": "population_count",
    "power": "pow",
    "remainder": "rem",
    "shift-left": "shift_left",
    "shift-right-arithmetic": "shift_right_arithmetic",
    "shift-right-logical": "shift_right_logical",
    "sine": "sin",
}
_ROUNDING = {"round-nearest-afz": "AWAY_FROM_ZERO", "round-nearest-even": "TO_NEAREST_EVEN"}
_REDUCERS = {
    "add": "lax.add",
    "and": "lax.bitwise_and",
    "maximum": "lax.max",
    "minimum": "lax.min",
    "multiply": "lax.mul",
    "or": "lax.bitwise_or",
}
_TYPES = {
    "pred": "bool_",
    **{f"s{bits}": f"int{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"},
    **{"c64": "complex64", "c128": "complex128"},
    **{f"f8{kind}": f"float8_{kind}" for kind in "e3m4 e4m3 e4m3b11fnuz e4m3fn e5m2".split()},
}
_NOT_OF_NUMPY = ("bf16", "f8", "s2", "s4", "u2", "u4")
# They take a number in the place of an array.
BROADCASTING = frozenset({*(name for name in _INFIX if name.islower()), "compare"})
ELEMENTWISE = frozenset(
    {*_INFIX, *_OF_LAX, *_ROUNDING, "compare", "convert", "copy", "negate", "not", "select"}
)


@dataclass(frozen=True, slots=True)
class Block:
    """The part of a value that one program of a kernel has: of ``dimension``, the share of one of
    the steps; all of the value if that is None.
    """

    dimension: int | None = None

    def sizes(self, shape: Shape, steps: str = STEPS) -> list[str]:
        """Return the sizes of the part of a value of this shape, as written."""
        sizes = list(map(str, shape.dimensions))
        if self.dimension is not None:
            sizes[self.dimension] += f" // {steps}"
        return sizes


WHOLE = Block()


def type_name(shape: Shape) -> str:
    """Return the name of the type of elements in ``jax.numpy``. Raises ``UnusableInput``."""
    try:
        return f"jnp.{_TYPES[shape.element_type]}"
    except KeyError:
        raise UnusableInput(f"no sketch: arrays of {shape.element_type} have no type") from None


def tuple_text(parts: Iterable[str]) -> str:
    """Return a tuple of expressions, as written."""
    texts = list(parts)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def write(
    instruction: MutableInstruction,
    operands: Sequence[str],
    block: Block,
    reducer: Callable[[MutableInstruction], str],
) -> str:
    """Return the part ``block`` of ``instruction`` as an expression of its ``operands``.
    ``reducer`` names the function by which a reduction combines scalars. Raises ``UnusableInput``
    for an operation that has no expression.
    """
    opcode, shape = instruction.opcode, instruction.shape
    if opcode == "compare":
        opcode = instruction.attributes["direction"]
    if opcode in _INFIX:
        return f"{operands[0]} {_INFIX[opcode]} {operands[1]}"
    if opcode in _OF_LAX:
        return f"lax.{_OF_LAX[opcode]}({', '.join(operands)})"
    if opcode in _ROUNDING:
        return f"lax.round({operands[0]}, lax.RoundingMethod.{_ROUNDING[opcode]})"
    if opcode in _REDUCING:
        return _REDUCING[opcode](instruction, operands, reducer)
    if opcode not in _WRITERS or not (shape.is_array or shape.is_tuple):
        name = instruction.origin or instruction.name
        raise UnusableInput(f"no sketch: {name} is {quoted(opcode)}, which has no expression")
    return _WRITERS[opcode](instruction, operands, block)


def _convert(instruction: MutableInstruction, operands: Sequence[str], _: Block) -> str:
    return f"{operands[0]}.astype({type_name(instruction.shape)})"


def _bitcast_convert(instruction: MutableInstruction, operands: Sequence[str], _: Block) -> str:
    return f"lax.bitcast_convert_type({operands[0]}, {type_name(instruction.shape)})"


def _select(_: MutableInstruction, operands: Sequence[str], __: Block) -> str:
    return f"jnp.where({', '.join(operands)})"


def _constant(instruction: MutableInstruction, _: Sequence[str], __: Block) -> str:
    literal = {"true": "True", "false": "False"}.get(instruction.literal, instruction.literal)
    name = type_name(instruction.shape)
    number = f'"{literal}"' if literal.lstrip("-") in ("inf", "nan") else literal
    if instruction.shape.element_type.startswith(_NOT_OF_NUMPY):
        number = f"float({number})" if number.startswith('"') else number
        return f"np.array({number}, {name})"
    return f"np.{name.removeprefix('jnp.')}({number})"


def is_scalar_constant(instruction: MutableInstruction) -> bool:
    """Return whether it is a number that the text shows."""
    return (
        instruction.opcode == "constant"
        and instruction.shape.is_array
        and not instruction.shape.dimensions
        and not is_elided(instruction.literal)
        and not instruction.shape.element_type.startswith("c")
    )


def _broadcast(instruction: MutableInstruction, operands: Sequence[str], block: Block) -> str:
    sizes = tuple_text(block.sizes(instruction.shape))
    if not instruction.operands[0].shape.dimensions:
        return f"jnp.full({sizes}, {operands[0]}, {type_name(instruction.shape)})"
    dimensions = tuple_text(map(str, instruction.attribute("dimensions")))
    return f"lax.broadcast_in_dim({operands[0]}, {sizes}, {dimensions})"


def _reshape(instruction: MutableInstruction, operands: Sequence[str], block: Block) -> str:
    return f"{operands[0]}.reshape({tuple_text(block.sizes(instruction.shape))})"


def _transpose(instruction: MutableInstruction, operands: Sequence[str], _: Block) -> str:
    return f"{operands[0]}.transpose({tuple_text(map(str, instruction.attribute('dimensions')))})"


def _iota(instruction: MutableInstruction, _: Sequence[str], block: Block) -> str:
    dimension = int(instruction.attributes["iota_dimension"])
    name, sizes = type_name(instruction.shape), block.sizes(instruction.shape)
    text = f"lax.broadcasted_iota({name}, {tuple_text(sizes)}, {dimension})"
    if block.dimension != dimension:
        return text
    return f"{text} + {name}({STEP} * ({sizes[dimension]}))"


def _slice(instruction: MutableInstruction, operands: Sequence[str], _: Block) -> str:
    ranges = read_slice(instruction.attributes["slice"])
    source = instruction.operands[0].shape
    parts = [
        ":"
        if (part.start, part.stop, part.step) == (0, size, 1)
        else f"{part.start}:{part.stop}" + (f":{part.step}" if part.step != 1 else "")
        for part, size in zip(ranges, source.dimensions, strict=True)
    ]
    return f"{operands[0]}[{', '.join(parts)}]"


def _pad(instruction: MutableInstruction, operands: Sequence[str], _: Block) -> str:
    sizes = tuple_text(
        str((low, high, *(between or (0,))))
        for low, high, *between in instruction.attribute("padding")
    )
    return f"lax.pad({operands[0]}, {operands[1]}, {sizes})"


def _concatenate(instruction: MutableInstruction, operands: Sequence[str], _: Block) -> str:
    (dimension,) = instruction.attribute("dimensions")
    return f"jnp.concatenate([{', '.join(operands)}], {dimension})"


def _reverse(instruction: MutableInstruction, operands: Sequence[str], _: Block) -> str:
    return f"lax.rev({operands[0]}, {tuple_text(map(str, instruction.attribute('dimensions')))})"


def _dot(instruction: MutableInstruction, operands: Sequence[str], _: Block) -> str:
    left, right, left_batch, right_batch = (
        tuple_text(map(str, instruction.attribute(f"{side}_{kind}_dims") or ()))
        for kind in ("contracting", "batch")
        for side in ("lhs", "rhs")
    )
    numbers = f"(({left}, {right}), ({left_batch}, {right_batch}))"
    precise = "highest" in instruction.attributes.get("operand_precision", "")
    precision = "precision=lax.Precision.HIGHEST, " if precise else ""
    result = f"preferred_element_type={type_name(instruction.shape)}"
    return f"lax.dot_general({', '.join(operands)}, {numbers}, {precision}{result})"


def _dynamic_slice(instruction: MutableInstruction, operands: Sequence[str], block: Block) -> str:
    starts = tuple_text(operands[1:])
    return (
        f"lax.dynamic_slice({operands[0]}, {starts}, {tuple_text(block.sizes(instruction.shape))})"
    )


def _dynamic_update_slice(_: MutableInstruction, operands: Sequence[str], __: Block) -> str:
    return f"lax.dynamic_update_slice({operands[0]}, {operands[1]}, {tuple_text(operands[2:])})"


def _gather(instruction: MutableInstruction, operands: Sequence[str], _: Block) -> str:
    source, indices = operands
    rank = instruction.operands[1].shape.rank
    vector = int(instruction.attributes["index_vector_dim"])
    if vector == rank:
        indices = f"{indices}[..., None]"
    elif vector != rank - 1:
        raise UnusableInput(f"no sketch: indices of {instruction.name} are not in rows")
    fields = {
        "offset_dims": "offset_dims",
        "collapsed_slice_dims": "collapsed_slice_dims",
        "start_index_map": "start_index_map",
        "operand_batching_dims": "operand_batching_dims",
        "start_indices_batching_dims": "start_indices_batching_dims",
    }
    numbers = ", ".join(
        f"{name}={tuple_text(map(str, instruction.attribute(key) or ()))}"
        for name, key in fields.items()
    )
    sizes = tuple_text(map(str, instruction.attribute("slice_sizes")))
    return (
        f"lax.gather({source}, {indices}, lax.GatherDimensionNumbers({numbers}), {sizes}, "
        'mode="clip")'
    )


def _tuple(_: MutableInstruction, operands: Sequence[str], __: Block) -> str:
    return tuple_text(operands)


def _element(instruction: MutableInstruction, operands: Sequence[str], _: Block) -> str:
    return f"{operands[0]}[{int(instruction.attributes['index'])}]"


_WRITERS: dict[str, Callable[[MutableInstruction, Sequence[str], Block], str]] = {
    "bitcast-convert": _bitcast_convert,
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "constant": _constant,
    "convert": _convert,
    "copy": lambda _, operands, __: operands[0],
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "get-tuple-element": _element,
    "iota": _iota,
    "negate": lambda _, operands, __: f"-{operands[0]}",
    "not": lambda _, operands, __: f"~{operands[0]}",
    "pad": _pad,
    "reshape": _reshape,
    "reverse": _reverse,
    "select": _select,
    "slice": _slice,
    "transpose": _transpose,
    "tuple": _tuple,
}


def _reduce(
    instruction: MutableInstruction,
    operands: Sequence[str],
    reducer: Callable[[MutableInstruction], str],
) -> str:
    values, initial = _halves(operands)
    dimensions = tuple_text(map(str, instruction.attribute("dimensions")))
    return f"lax.reduce({values}, {initial}, {reducer(instruction)}, {dimensions})"


def _reduce_window(
    instruction: MutableInstruction,
    operands: Sequence[str],
    reducer: Callable[[MutableInstruction], str],
) -> str:
    window = read_window(instruction.attributes["window"])
    values, initial = _halves(operands)
    fields = (
        tuple(dimension.size for dimension in window),
        tuple(dimension.stride for dimension in window),
        tuple((dimension.low, dimension.high) for dimension in window),
        tuple(dimension.base_dilation for dimension in window),
        tuple(dimension.window_dilation for dimension in window),
    )
    function = reducer(instruction)
    return f"lax.reduce_window({values}, {initial}, {function}, {', '.join(map(str, fields))})"


def _halves(operands: Sequence[str]) -> tuple[str, str]:
    """Return the values and the initial values of a reduction, as one or as tuples."""
    count = len(operands) // 2
    if count == 1:
        return operands[0], operands[1]
    return tuple_text(operands[:count]), tuple_text(operands[count:])


_REDUCING = {"reduce": _reduce, "reduce-window": _reduce_window}


def simple_reducer(reduction: MutableInstruction) -> str | None:
    """Return JAX's name of the function by which it combines two scalars, if it has one."""
    return _REDUCERS.get(combiner(reduction) or "")
