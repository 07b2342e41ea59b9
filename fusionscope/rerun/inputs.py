"""Finds out what a program does with its arguments, so that drawn ones make sense to it.

Random numbers of any sign make many programs compute nothing but NaN, which compare with nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fusionscope.graph.properties import number_of
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.search import reachable
from fusionscope.hlo.views import COPIES

# Operations that pass on the values of these operands (None: of all).
_PASSING: dict[str, tuple[int, ...] | None] = {
    "bitcast": None,
    "broadcast": None,
    "clamp": (1,),
    "concatenate": None,
    "convert": None,
    "copy": None,
    "dynamic-slice": (0,),
    "dynamic-update-slice": (0, 1),
    "gather": (0,),
    "opt-barrier": None,
    "pad": None,
    "reduce-precision": None,
    "reshape": None,
    "reverse": None,
    "select": (1, 2),
    "slice": None,
    "transpose": None,
}
_POSITIVE = frozenset({"log", "log-plus-one", "rsqrt", "sqrt"})
_UNIT = frozenset({"acos", "asin", "atanh"})
_DEFINITE = re.compile(r"(lapack_\w|cusolver_|hipsolver_)potrf|(lapack_\w|cublas_|hipblas_)trsm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The values that a program expects of an argument: ``is_positive`` numbers, such as the
    argument of a logarithm; ``is_unit`` numbers between 0 and 1, where it also takes the logarithm
    of their complement; integers ``below`` a number, such as indices; ``is_definite`` matrices,
    that it factors or solves a triangular system with.
    """

    is_positive: bool = False
    is_unit: bool = False
    is_definite: bool = False
    below: int | None = None


@dataclass(frozen=True, slots=True)
class _Value:
    """What an instruction has of an argument: in the tuple element ``part``, as it is, squared, as
    its complement (1 - x, or -x), or only positive if that is (a product, quotient or sum).
    """

    instruction: Instruction
    part: tuple[int, ...] = ()
    is_square: bool = False
    is_complement: bool = False
    is_factor: bool = False


def find_domains(program: Module) -> list[Domain]:
    """Return what ``program`` expects of its arguments, in their order."""
    return [_find_domain(parameter) for parameter in program.entry.parameters]


def _find_domain(parameter: Instruction) -> Domain:
    domain = Domain()
    for value in reachable([_Value(parameter)], _next_values):
        for user, slot in _uses(value.instruction):
            domain = _narrow(domain, value, user, slot)
    return domain


def _next_values(value: _Value) -> Iterator[_Value]:
    """Yield what the users of ``value`` make of it, and where it is returned."""
    for user, slot in _uses(value.instruction):
        yield from _passed_on(value, user, slot)
    if value.instruction.is_root:
        yield from _returned(value)


def _uses(instruction: Instruction) -> Iterator[tuple[Instruction, int]]:
    """Yield the users, each with the numbers of the operands that it reads."""
    for user in instruction.users:
        for slot, operand in enumerate(user.operands):
            if operand is instruction:
                yield user, slot


def _narrow(domain: Domain, value: _Value, user: Instruction, slot: int) -> Domain:
    """Return what is expected after ``user``, whose operand at ``slot`` the value is."""
    opcode = user.opcode
    if opcode in _POSITIVE or (opcode == "divide" and slot == 1) or _is_base(user, slot):
        if value.is_complement:
            return replace(domain, is_unit=True)
        return domain if value.is_square else replace(domain, is_positive=True)
    if value.is_factor:
        return domain
    if opcode in _UNIT:
        return replace(domain, is_unit=True)
    if slot == 0 and opcode in ("cholesky", "triangular-solve"):
        return replace(domain, is_definite=True)
    if opcode == "custom-call" and slot == 0:
        target = str(user.attribute("custom_call_target") or "")
        return replace(domain, is_definite=domain.is_definite or bool(_DEFINITE.match(target)))
    below = _bound(user, slot)
    if below is not None:
        return replace(domain, below=min(below, domain.below or below))
    return domain


def _is_base(user: Instruction, slot: int) -> bool:
    """Return whether ``user`` raises the operand to a power that is not an integer."""
    if user.opcode != "power" or slot != 0:
        return False
    power = _constant(user.operands[1])
    return power is None or not power.is_integer()


def _bound(user: Instruction, slot: int) -> int | None:
    """Return below what an index at ``slot`` must be, or None if it is no index."""
    match user.opcode:
        case "dynamic-slice" if slot > 0:
            sizes, indexed = user.attribute("dynamic_slice_sizes"), [slot - 1]
        case "dynamic-update-slice" if slot > 1:
            sizes, indexed = user.operands[1].shape.dimensions, [slot - 2]
        case "gather" if slot == 1:
            sizes, indexed = user.attribute("slice_sizes"), user.attribute("start_index_map")
        case "scatter" if slot == len(user.operands) // 2:
            indexed = user.attribute("scatter_dims_to_operand_dims")
            sizes = (1,) * len(user.operands[0].shape.dimensions)
        case "compare" if user.attribute("direction") in ("EQ", "NE"):
            return _counted(user.operands[1 - slot])
        case _:
            return None
    data = user.operands[0].shape.dimensions
    return min((data[dimension] - sizes[dimension] + 1 for dimension in indexed), default=None)


def _counted(instruction: Instruction) -> int | None:
    """Return how many numbers an iota counts, seen through operations that pass it on."""
    iota = _source(instruction)
    if iota.opcode != "iota":
        return None
    return iota.shape.dimensions[iota.attribute("iota_dimension") or 0]


def _source(instruction: Instruction) -> Instruction:
    """Return where the elements come from, past what moves, repeats or converts them."""
    while instruction.opcode in COPIES | {"broadcast", "convert", "transpose"}:
        (instruction,) = instruction.operands
    return instruction


def _passed_on(value: _Value, user: Instruction, slot: int) -> Iterator[_Value]:
    """Yield the values that ``user`` makes of the one at ``slot``."""
    match user.opcode:
        case "tuple":
            yield replace(value, instruction=user, part=(slot, *value.part))
        case "get-tuple-element":
            if value.part[:1] == (user.attribute("index"),):
                yield replace(value, instruction=user, part=value.part[1:])
        case "while":
            for computation in user.called:
                yield replace(value, instruction=computation.parameters[0])
            yield replace(value, instruction=user)
        case "call":
            yield replace(value, instruction=user.called[0].parameters[slot])
        case "conditional" if slot > 0:
            yield replace(value, instruction=user.called[slot - 1].parameters[0])
        case opcode if opcode in _PASSING:
            slots = _PASSING[opcode]
            if slots is None or slot in slots:
                yield replace(value, instruction=user)
        case _:
            yield from _computed(replace(value, instruction=user), value.instruction, slot)


def _computed(value: _Value, operand: Instruction, slot: int) -> Iterator[_Value]:
    """Yield ``value``, which an instruction computes of ``operand`` at ``slot``, if it tells
    something about that.
    """
    user = value.instruction
    second = user.operands[1 - slot] if len(user.operands) == 2 else None
    number = _constant(second) if second is not None else None
    match user.opcode:
        case "negate":
            yield replace(value, is_complement=True)
        case "subtract" if slot == 1 and number is not None:
            yield replace(value, is_complement=True)
        case "multiply" if second is operand:
            yield replace(value, is_square=True)
        case "add" | "divide" | "multiply" if number is not None and number > 0:
            yield value
        case "add" if second is not None and second.opcode == "transpose":
            if second.operands[0] is operand:
                yield value
        case "add" | "divide" | "multiply" | "reduce" | "reduce-window" if not value.is_complement:
            yield replace(value, is_factor=True)


def _returned(value: _Value) -> Iterator[_Value]:
    """Yield the results of the calls of the computation whose root the value is."""
    computation = value.instruction.computation
    for caller in computation.module.callers.get(computation, ()):
        if caller.opcode in ("call", "conditional"):
            yield replace(value, instruction=caller)


def _constant(instruction: Instruction) -> float | None:
    """Return the number that all elements are, or None if they are not one constant."""
    return number_of(_source(instruction))
