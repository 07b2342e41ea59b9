"""What a launch does with its operands, whatever it computes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod
from typing import NamedTuple

from fusionscope.history.kernels import instructions_in, operations_in
from fusionscope.hlo import Instruction
from fusionscope.hlo.opcodes import BINARY, UNARY
from fusionscope.hlo.search import reachable

_CALLING = ("async-start", "fusion")
_MOVING = frozenset(
    """bitcast broadcast copy dynamic-slice gather get-tuple-element reshape reverse slice transpose
    tuple""".split()
)
# They need the same share of their operands as is needed of their result.
_PROPORTIONAL = UNARY | BINARY | _MOVING | {"clamp", "iota", "reduce", "select"}
# The first operand that says where elements are.
_INDICES = {"dynamic-slice": 1, "dynamic-update-slice": 2, "gather": 1}


def sorted_dimension(launch: Instruction) -> int | None:
    """Return the dimension along which a launch sorts; None unless it sorts, and else only moves
    elements and computes with them one by one.
    """
    operations = frozenset(operations_in(launch))
    if "sort" not in operations or not operations <= _PROPORTIONAL | {"sort"}:
        return None
    sorts = (inner for inner in instructions_in(launch) if inner.opcode == "sort")
    dimensions = {tuple(sort.attribute("dimensions") or ()) for sort in sorts}
    (first, *later) = dimensions
    return int(first[0]) if len(first) == 1 and not later else None


def share_beside(launch: Instruction, slot: int, dimension: int) -> float:
    """Return the share of the other dimensions of an operand that a launch reads by slices along
    ``dimension``.
    """
    users: Sequence[Instruction] = (launch,)
    if launch.opcode == "fusion":
        users = launch.called[0].parameters[slot].users
    whole = launch.operands[slot].shape.dimensions
    shares = [0.0]
    for user in users:
        if user.opcode == "slice":
            sizes = zip(whole, user.shape.dimensions, strict=True)
            shares.append(
                prod((a or 0) / (b or 1) for n, (b, a) in enumerate(sizes) if n != dimension)
            )
    return max(shares)


class Width(NamedTuple):
    """The share of the width of an operand that a launch needs, whether it also hands it on
    unchanged, and the narrower type that it converts it to, empty if it uses it as it is.
    """

    share: float
    is_handed_on: bool
    element_type: str = ""


_WHOLE = Width(1.0, False)
_ONLY_MOVED = Width(0.0, True)


class Content(NamedTuple):
    """What a launch does with its operands: the widths that it needs of them, and which say where
    others are read or written. If it ``is_proportional``, a share of its results needs the same
    share of its operands.
    """

    widths: tuple[Width, ...]
    indices: frozenset[int]
    is_proportional: bool


def content_of(launch: Instruction) -> Content:
    """Return the content of a launch."""
    callees = launch.called[:1] if launch.opcode in _CALLING else ()
    if not callees:
        return _content(launch)
    alike: dict[str, Content] = callees[0].shared_cache("content")
    if "content" not in alike:
        alike["content"] = _content(launch)
    return alike["content"]


def _content(launch: Instruction) -> Content:
    opcodes = frozenset(operations_in(launch))
    is_proportional = opcodes <= _PROPORTIONAL
    slots = range(len(launch.operands))
    if launch.opcode not in _CALLING:
        indices = frozenset(_indices(launch))
        widths = tuple(_width_in(launch, slot, indices) for slot in slots)
        return Content(widths, indices, is_proportional)
    parameters = launch.called[0].parameters if launch.called else ()
    indices = frozenset() if _INDICES.keys().isdisjoint(opcodes) else _picked_by(launch)
    if "convert" in opcodes or opcodes <= _MOVING:
        widths = tuple(map(_needed_width, parameters))
    else:
        widths = (_WHOLE,) * len(slots)
    return Content(widths, indices, is_proportional)


def _indices(operation: Instruction) -> range:
    """Return the operands that say which elements an operation reads or writes."""
    count = len(operation.operands)
    if operation.opcode == "scatter":
        return range((count - 1) // 2, (count - 1) // 2 + 1)
    return range(_INDICES.get(operation.opcode, count), count)


def _width_in(operation: Instruction, slot: int, indices: Collection[int]) -> Width:
    """Return the width that an operation needs of its operand ``slot``."""
    if operation.opcode == "convert":
        old, new = operation.operands[slot].shape.bits, operation.shape.bits
        is_narrower = 0 < new < old
        return Width(new / old, False, operation.shape.element_type) if is_narrower else _WHOLE
    if operation.opcode in _MOVING and slot not in indices:
        before, after = operation.operands[slot].shape, operation.shape
        return _ONLY_MOVED if after.is_tuple or before.bits == after.bits else _WHOLE
    return _WHOLE


def _needed_width(parameter: Instruction) -> Width:
    """Return the width that the computation of a launch needs of a parameter."""
    most, is_handed_on = Width(0.0, False), False
    for value in reachable([parameter], _moved):
        if value.is_root and value.computation is parameter.computation:
            is_handed_on = True
        for user in value.users:
            if user.opcode == "fusion":
                continue
            indices = _indices(user)
            for slot, operand in enumerate(user.operands):
                if operand is value:
                    most = max(most, _width_in(user, slot, indices)._replace(is_handed_on=False))
    return most._replace(is_handed_on=is_handed_on)


def _moved(value: Instruction) -> Iterator[Instruction]:
    """Yield what has the same elements as a value inside a launch, or some of them."""
    if value.is_root:
        callers = value.computation.module.callers.get(value.computation, ())
        yield from (caller for caller in callers if _is_nested(caller))
    for user in value.users:
        for slot, operand in enumerate(user.operands):
            if operand is not value:
                continue
            if user.opcode == "fusion":
                yield from user.called[0].parameters[slot : slot + 1]
            elif _width_in(user, slot, _indices(user)).is_handed_on:
                yield user


def _is_nested(caller: Instruction) -> bool:
    """Return whether a fusion is in another one."""
    return caller.opcode == "fusion" and caller.computation in (
        caller.computation.module.outermost_fusions
    )


def _picked_by(launch: Instruction) -> frozenset[int]:
    """Return the parameters of a fusion that say which elements of others it reads or writes."""
    starts: list[Instruction] = []
    for inner in instructions_in(launch):
        operands = inner.operands
        starts += (operands[slot] for slot in _indices(inner))
    body = launch.called[0]
    return frozenset(
        value.parameter_number or 0
        for value in reachable(starts, _read_by)
        if value.opcode == "parameter" and value.computation is body
    )


def _read_by(value: Instruction) -> Iterator[Instruction]:
    """Yield what a value is computed from, through nested fusions."""
    yield from value.operands
    if value.opcode == "parameter":
        callers = value.computation.module.callers.get(value.computation, ())
        number = value.parameter_number or 0
        yield from (caller.operands[number] for caller in callers if _is_nested(caller))
