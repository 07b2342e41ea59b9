"""What in a program says how an array is split: an argument, a result, or a line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from fusionscope.facts.source_lines import operation_of, user_line
from fusionscope.findings.collectives.facts import Sharding
from fusionscope.findings.collectives.splitting import WHOLE, parts_of, text_of
from fusionscope.hlo import Instruction
from fusionscope.hlo.shardings import normal_sharding

_MOST_STEPS = 1_000  # from an instruction to what sets its sharding
_SETTERS = frozenset({"reshard", "shard_map", "sharding_constraint"})
_OUTPUTS = "allow_spmd_sharding_propagation_to_output"  # what is not allowed, the program sets
_RESULT = "the result"
_PASS_ON = frozenset({"call", "conditional", "opt-barrier", "while"})


def described(instruction: Instruction) -> Instruction:
    """Return what has the metadata of an instruction: ``tuple#1`` has those of the tuple."""
    if instruction.opcode == "get-tuple-element" and instruction.op_name is None:
        return instruction.operands[0]
    return instruction


def line_of(instruction: Instruction) -> str | None:
    """Return the line of an instruction, or of the nearest user or operand that has one."""
    for neighbours in (_users_of, _operands_of):
        visited, pending = {instruction}, deque([instruction])
        while pending and len(visited) < _MOST_STEPS:
            step = pending.popleft()
            place = user_line(described(step).stack)
            if place is not None:
                return str(place)
            pending.extend(neighbour for neighbour in neighbours(step) if neighbour not in visited)
            visited.update(pending)
    return None


def _users_of(instruction: Instruction) -> Sequence[Instruction]:
    return instruction.users


def _operands_of(instruction: Instruction) -> Sequence[Instruction]:
    return instruction.operands


def sharding_of(
    instruction: Instruction, apart: Sequence[Instruction], operand: Instruction | None = None
) -> Sharding:
    text = text_of(instruction, operand)
    return Sharding(operation_of(instruction), text, _set_by(instruction, text, apart))


def _set_by(instruction: Instruction, text: str, apart: Sequence[Instruction]) -> str | None:
    """Return what in the program has the sharding ``text``, the nearest to an instruction: first
    among those that all have it, then a result of the program that is asked for so, then among
    those that have it but for dimensions that are whole, then among those that are split at all.
    Of several, a line comes before an argument. ``apart`` is where another begins.
    """
    sharding = normal_sharding(text)
    parts = parts_of(sharding)
    is_same, is_split = sharding.__eq__, lambda text: text not in WHOLE
    ways = (is_same, lambda text: parts_of(text) == parts, is_split)
    for may_pass in ways[:1] if sharding in WHOLE else ways:
        visited, level = {instruction, *apart}, [instruction]
        while level and len(visited) < _MOST_STEPS:
            for step in level:
                if _is_setter(step):
                    return line_of(step)
            for step in level:
                if _is_given(step):
                    return step.op_name or step.name
            next_level = []
            for neighbour in (neighbour for step in level for neighbour in _neighbours(step)):
                if neighbour not in visited and may_pass(normal_sharding(text_of(neighbour))):
                    visited.add(neighbour)
                    next_level.append(neighbour)
            level = next_level
        if any(_is_result_asked_for(step, sharding) for step in visited):
            return _RESULT
    return None


def _neighbours(instruction: Instruction) -> Iterator[Instruction]:
    """Yield operands and users; what loops, conditionals and calls pass on is the same inside."""
    for neighbour in (*instruction.operands, *instruction.users):
        if neighbour.opcode not in _PASS_ON | {"parameter", "tuple"} or _is_given(neighbour):
            yield neighbour
    for whole, index in _places(instruction):
        for value in _passed_on(whole):
            if index is None:
                yield value
                continue
            if value.opcode == "tuple":
                yield value.operands[index]
            yield from (user for user in value.users if user.attributes.get("index") == str(index))


def _places(instruction: Instruction) -> Iterator[tuple[Instruction, int | None]]:
    """Yield where a value is: alone, or as an element of a tuple."""
    yield instruction, None
    if instruction.opcode == "get-tuple-element":
        yield instruction.operands[0], int(instruction.attributes["index"])
    for user in instruction.users:
        if user.opcode == "tuple":
            yield user, user.operands.index(instruction)


def _passed_on(whole: Instruction) -> Iterator[Instruction]:
    """Yield what has the value of ``whole`` inside and around computations that are called."""
    callers = [
        instruction for instruction in (whole, *whole.users) if instruction.opcode in _PASS_ON
    ]
    if whole.opcode == "parameter" or whole.is_root:
        callers += whole.computation.module.callers.get(whole.computation, ())
    for caller in callers:
        for values in _same_values(caller):
            if whole in values:
                yield from values


def _same_values(caller: Instruction) -> Iterator[tuple[Instruction, ...]]:
    """Yield what is the same value in a caller and in what it calls."""
    computations, operands = caller.called, caller.operands
    match caller.opcode:
        case "while":
            bodies = [body for body in computations if body.root.shape.compatible(caller.shape)]
            states = [state for body in bodies for state in (*body.parameters, body.root)]
            yield caller, *operands, *states
        case "conditional":
            yield caller, *(branch.root for branch in computations)
            for operand, branch in zip(operands[1:], computations, strict=False):
                yield operand, *branch.parameters
        case "call":
            yield caller, *(body.root for body in computations)
            yield from zip(operands, *(body.parameters for body in computations), strict=False)
        case _:
            yield caller, *operands


def _is_setter(instruction: Instruction) -> bool:
    """Return whether it is a constraint of the program, or what a ``jit`` within it asks for."""
    word = (instruction.op_name or "").rpartition("/")[2]
    return word in _SETTERS or (instruction.opcode == "copy" and word.startswith("jit("))


def _is_given(instruction: Instruction) -> bool:
    """Return whether it is an argument of the program."""
    computation = instruction.computation
    return instruction.opcode == "parameter" and computation is computation.module.entry


def _is_result_asked_for(instruction: Instruction, sharding: str) -> bool:
    """Return whether it is a result of the program, which says how that is split."""
    module = instruction.computation.module
    root = module.entry.root
    results = root.operands if root.opcode == "tuple" else (root,)
    if instruction not in results or normal_sharding(text_of(instruction)) != sharding:
        return False
    may_choose = module.attributes.get(_OUTPUTS, "{false}").strip("{}").split(",")
    return may_choose[min(results.index(instruction), len(may_choose) - 1)] == "false"
