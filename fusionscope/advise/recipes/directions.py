"""Products that each step normalises, such as the probabilities of a filter: of the state only the
direction counts, so all steps are products of matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from fusionscope.advise.recipes.patterns import array, build, combiner, integers, reducer, scalar
from fusionscope.advise.recipes.vectorizing import Builder, Value, form_of
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.search import reachable
from fusionscope.hlo.shape import Shape

MOST_NUMBERS = 64  # of a state, whose matrices have as many rows and columns
_TINY = 1e-10  # beside the numbers of a direction, whose largest is one
_TYPES = frozenset({"f32", "f64"})


class _Kind(Enum):
    """What an instruction computes from the state: numbers that are linear in it up to a factor,
    copies of one such number, or a comparison of them.
    """

    VECTOR = 0
    SIZE = 1
    TEST = 2


@dataclass(frozen=True, slots=True)
class _Role:
    """``degree`` is 1 for what doubles if the state does, 0 for what stays the same."""

    kind: _Kind
    degree: int


_Roles = Mapping[MutableInstruction, _Role]


@dataclass(frozen=True, slots=True)
class Direction:
    """Element ``index`` of a state, whose next value, ``result``, depends on its direction alone.
    ``inner`` are the instructions between both, in their order. ``linear`` are those of them that
    compute a multiple of the result linearly, each with the operand that it only scales or keeps
    from zero, if it does so.
    """

    index: int
    inner: tuple[MutableInstruction, ...]
    linear: Mapping[MutableInstruction, MutableInstruction | None]
    result: MutableInstruction

    @property
    def count(self) -> int:
        """How many numbers the state has."""
        return self.result.shape.element_count or 0

    @property
    def bytes_stacked(self) -> int:
        """The bytes of the matrix of one step."""
        return self.count * (self.result.shape.byte_size or 0)


def read_direction(
    index: int,
    elements: Iterable[MutableInstruction],
    order: Iterable[MutableInstruction],
    result: MutableInstruction,
    is_stacked: Mapping[MutableInstruction, bool],
    steps: int,
) -> Direction | None:
    """Return how ``result`` depends on the direction of ``elements``, if on nothing else but what
    is known of all ``steps``, the keys of ``is_stacked``. Tiny numbers that keep others from zero
    do not count.
    """
    shape = result.shape
    if shape.element_type not in _TYPES or not 1 < (shape.element_count or 0) <= MOST_NUMBERS:
        return None
    roles = dict.fromkeys(elements, _Role(_Kind.VECTOR, 1))
    linear: dict[MutableInstruction, MutableInstruction] = {}
    for instruction in order:
        if instruction in roles or instruction in is_stacked:
            continue
        flags = [is_stacked.get(operand, True) for operand in instruction.operands]
        if form_of(instruction, flags, steps) is not None:
            role = _role(instruction, roles, is_stacked, linear)
            if role is not None:
                roles[instruction] = role
    if roles.get(result) != _Role(_Kind.VECTOR, 0):
        return None

    def inside(item: MutableInstruction) -> list[MutableInstruction]:
        return [operand for operand in item.operands if operand in roles]

    def scaled(item: MutableInstruction) -> list[MutableInstruction]:
        return [linear[item]] if item in linear else inside(item)

    computed = [item for item in roles if item.opcode != "get-tuple-element"]
    inner, maps = {*reachable([result], inside)}, {*reachable([result], scaled)}
    return Direction(
        index,
        tuple(item for item in computed if item in inner),
        {item: linear.get(item) for item in computed if item in maps},
        result,
    )


def _role(
    instruction: MutableInstruction,
    roles: _Roles,
    values: Mapping[MutableInstruction, bool],
    linear: dict[MutableInstruction, MutableInstruction],
) -> _Role | None:
    """Return the role of an instruction, None if it has none. Notes in ``linear`` the operand that
    it equals up to a factor and tiny numbers, if there is one.
    """
    operands = instruction.operands
    inside = [operand for operand in operands if operand in roles]
    if not inside or not all(operand in roles or operand in values for operand in operands):
        return None
    first = roles[inside[0]]
    match instruction.opcode, len(inside):
        case (("negate" | "reshape" | "transpose" | "broadcast"), 1):
            return first if first.kind is not _Kind.TEST else None
        case (("multiply" | "dot"), 1):
            return first if first.kind is _Kind.VECTOR else None
        case "compare", 1:
            return _Role(_Kind.TEST, first.degree) if _has_tiny(operands) else None
        case (("add" | "maximum"), 1):
            linear[instruction] = inside[0]
            return first if first.kind is not _Kind.TEST and _has_tiny(operands) else None
        case (("add" | "subtract"), 2):
            is_sum = all(roles[operand] == _Role(_Kind.VECTOR, 1) for operand in inside)
            return first if is_sum else None
        case "divide", 1:
            return first if operands[0] in roles and first.kind is _Kind.VECTOR else None
        case "divide", 2:
            linear[instruction] = operands[0]
            divisor = roles[operands[1]]
            is_size = first.kind is _Kind.VECTOR and divisor == _Role(_Kind.SIZE, first.degree)
            return _Role(_Kind.VECTOR, 0) if is_size else None
        case "reduce", 1:
            is_sum = combiner(instruction) == "add" and _is_tiny(operands[1], 0.0)
            if not is_sum or first.kind is not _Kind.VECTOR:
                return None
            is_size = instruction.shape.element_count == 1
            return _Role(_Kind.SIZE, first.degree) if is_size else first
        case "select", _:
            return _selected(instruction, roles, linear)
    return None


def _selected(
    selection: MutableInstruction,
    roles: _Roles,
    linear: dict[MutableInstruction, MutableInstruction],
) -> _Role | None:
    condition, *branches = selection.operands
    inside = [branch for branch in branches if branch in roles]
    if not inside or roles[inside[0]].kind is _Kind.TEST:
        return None
    first = roles[inside[0]]
    if len(inside) == 2:
        is_linear = all(roles[branch] == _Role(_Kind.VECTOR, 1) for branch in branches)
        return first if condition not in roles and is_linear else None
    (beside,) = (branch for branch in branches if branch not in roles)
    if condition not in roles:
        return first if first.kind is _Kind.VECTOR and _is_tiny(beside, 0.0) else None
    linear[selection] = inside[0]
    is_floor = _is_tiny(beside) or (
        first.kind is _Kind.SIZE and condition.attributes.get("direction") == "EQ"
    )
    return first if is_floor and roles[condition].kind is _Kind.TEST else None


def _has_tiny(operands: Iterable[MutableInstruction]) -> bool:
    return any(map(_is_tiny, operands))


def _is_tiny(value: MutableInstruction, most: float = _TINY) -> bool:
    """Return whether all numbers of ``value`` are a constant of at most ``most``, or zero."""
    while value.opcode in ("broadcast", "convert", "reshape"):
        value = value.operands[0]
    literal = scalar(value)
    try:
        return literal is not None and abs(float(literal)) <= most
    except ValueError:
        return False


def find_directions(
    direction: Direction,
    start: Value,
    builder: Builder,
    values: Mapping[MutableInstruction, Value],
) -> Value:
    """Return the direction after each step, in the shape of the state. ``values`` are those of the
    body's instructions outside of the loop.

    Each round multiplies products of a number of steps into those of twice as many.
    """
    products, span = _matrices(direction, builder, values), 1
    while span < builder.steps:
        earlier = builder.cut(products, 0, builder.steps - span)
        later = _product(earlier, builder.cut(products, span, builder.steps), builder)
        products = builder.join([builder.cut(products, 0, span), later])
        span *= 2
    return _directed(start, products, builder)


def _matrices(
    direction: Direction, builder: Builder, values: Mapping[MutableInstruction, Value]
) -> Value:
    """Return what each step makes of states with one number that is one, in a row each:
    ``[steps, numbers, numbers]``.
    """
    shape, count = direction.result.shape, direction.count
    rows = Builder(builder.target, builder.near, builder.steps * count)
    lines: dict[MutableInstruction, Value] = {}

    def line(operand: MutableInstruction) -> Value:
        if operand in lines:
            return lines[operand]
        if operand in values:
            return _repeated(values[operand], builder, count)
        return _units(shape, builder, count)

    for instruction, operand in direction.linear.items():
        if operand is not None:
            lines[instruction] = line(operand)
        else:
            lines[instruction] = rows.clone(instruction, list(map(line, instruction.operands)))
    square = Shape(shape.element_type, (builder.steps, count, count))
    return builder.make("reshape", square, [lines[direction.result]])


def _repeated(value: Value, builder: Builder, count: int) -> Value:
    """Return the value of each step ``count`` times in a row."""
    if not value.is_stacked:
        return value
    kind, (steps, *sizes) = value.shape.element_type, value.shape.dimensions
    places = integers([0, *range(2, len(sizes) + 2)])
    spread = builder.make(
        "broadcast", Shape(kind, (steps, count, *sizes)), [value], f", dimensions={places}"
    )
    return builder.make("reshape", Shape(kind, (builder.steps * count, *sizes)), [spread])


def _units(shape: Shape, builder: Builder, count: int) -> Value:
    """Return states with one number that is one, in a row each, for each step."""
    kind, steps = shape.element_type, builder.steps
    cube = [steps, count, count]
    rows = array(kind, [steps * count, *shape.dimensions])
    lines = f"""
        row = {array("s32", cube)} iota(), iota_dimension=1
        column = {array("s32", cube)} iota(), iota_dimension=2
        is_one = {array("pred", cube)} compare(row, column), direction=EQ
        units = {array(kind, cube)} convert(is_one)
        ROOT rows = {rows} reshape(units)
        """
    return Value(build(builder.near, lines, []), True)


def _product(earlier: Value, later: Value, builder: Builder) -> Value:
    """Return the products of matrices, ``[rows, numbers, numbers]``, up to a factor."""
    text = (
        ", lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},"
        " rhs_contracting_dims={1}, operand_precision={highest,highest}"
    )
    return _normalised(builder.make("dot", earlier.shape, [earlier, later], text), builder)


def _directed(start: Value, products: Value, builder: Builder) -> Value:
    """Return the direction that each of ``products``, ``[steps, numbers, numbers]``, gives to
    ``start``, in its shape.
    """
    kind, (steps, count, _) = products.shape.element_type, products.shape.dimensions
    flat = builder.make("reshape", Shape(kind, (count,)), [start])
    text = (
        ", lhs_contracting_dims={0}, rhs_contracting_dims={1}, operand_precision={highest,highest}"
    )
    rows = builder.make("dot", Shape(kind, (steps, count)), [flat, products], text)
    shape = Shape(kind, (steps, *start.shape.dimensions))
    return builder.make("reshape", shape, [_normalised(rows, builder)])


def _normalised(stacked: Value, builder: Builder) -> Value:
    """Return it with a largest magnitude of one in each row, apart from rows of zeros."""
    kind, (rows, *sizes) = stacked.shape.element_type, stacked.shape.dimensions
    whole, numbers = array(kind, stacked.shape.dimensions), array(kind, [rows])
    places = integers(range(1, len(sizes) + 1))
    lines = f"""
        magnitudes = {whole} abs(%p0)
        zero = {kind}[] constant(0)
        largest = {numbers} reduce(magnitudes, zero), dimensions={places}, to_apply=maximum
        zeros = {numbers} broadcast(zero), dimensions={{}}
        is_zero = {array("pred", [rows])} compare(largest, zeros), direction=EQ
        one = {kind}[] constant(1)
        ones = {numbers} broadcast(one), dimensions={{}}
        factors = {numbers} select(is_zero, ones, largest)
        spread = {whole} broadcast(factors), dimensions={{0}}
        ROOT result = {whole} divide(%p0, spread)
        """
    computation = reducer("maximum", kind)
    return Value(build(builder.near, lines, [stacked.instruction], computation), True)
