"""How often a loop runs its body and its condition.

The compiler writes the number of steps that it knows into a loop (``known_trip_count``), and the
runtimes of CPUs and GPUs then run the body so often and the condition never. Otherwise they run the
condition once more than the body. Sources: xla/backends/cpu/runtime/while_thunk.cc,
xla/backends/gpu/runtime/while_thunk.cc.

Earlier stages, and all of a TPU, have no such number. There the condition and the counter tell it:
a counter that starts at a constant, changes by a constant, and is compared with a constant. A
condition that also looks at something else bounds the steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from fusionscope.dump.length import Length
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.views import COPIES

if TYPE_CHECKING:
    from fusionscope.dump import DumpedModule

# Older texts quote it.
_TRIP_COUNT = re.compile(r'\\?"known_trip_count\\?":\s*\{\s*\\?"n\\?":\s*\\?"(\d+)\\?"')
_SMALL_CALL = re.compile(r'xla_cpu_small_call="?true')
_HOISTED = "_computation"  # behind the name of the loop
_INTEGER = re.compile(r"-?\d+")
_INTEGERS = re.compile(r"[su](?:8|16|32|64)\[")
# What passes a number on unchanged.
_SAME = COPIES | {"opt-barrier"}
_INLINED = frozenset({"call", "fusion"})
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}
_UNROLLS = "xla_gpu_command_buffer_unroll_loops"
_MOST_VISITED = 1_000  # instructions on the way to what a value is


class Recording(StrEnum):
    """How a command buffer of a GPU has a loop."""

    UNROLLED = "unrolled"
    REPEATED = "repeated"  # as a node that repeats its body


@dataclass(frozen=True, slots=True)
class Loop:
    """One run of a loop: ``steps`` of its body, and as many ``tests`` of its condition."""

    name: str
    steps: int
    length: Length
    tests: int

    @property
    def is_exact(self) -> bool:
        return self.length in (Length.KNOWN, Length.GIVEN)


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """What a stage does not tell of its loops, by their names: the number of steps that the user
    gives, how command buffers have them, and which of them the CPU compiler makes one function
    of.
    """

    steps: Mapping[str, int]
    recordings: Mapping[str, Recording]
    functions: frozenset[str]


NOTHING_MORE = LoopFacts({}, {}, frozenset())


def read_loop_facts(module: DumpedModule) -> LoopFacts:
    """Return what the final stage, the user, and the file on command buffers tell of the loops of
    ``module``. Raises ``UnusableInput`` if one of the files cannot be read.
    """
    final = module.read(module.last)
    recordings: dict[str, Recording] = {}
    if any(buffer.loops for buffer in module.command_buffers):
        names = module.thunk_instructions
        values = module.flags.values.get(_UNROLLS, ()) if module.flags is not None else ()
        recording = Recording.UNROLLED if "true" in values else Recording.REPEATED
        loops = (loop for buffer in module.command_buffers for loop in buffer.loops)
        recordings = {names[loop]: recording for loop in loops if loop in names}
    return LoopFacts(module.steps, recordings, hoisted_loops(final))


def is_counted(loop: Instruction) -> bool:
    """Return whether the number of steps of a loop is known."""
    return describe_loop(loop).length is Length.KNOWN


def describe_loop(loop: Instruction, more: LoopFacts = NOTHING_MORE) -> Loop:
    """Return how often ``loop``, a ``while``, runs its body and its condition."""
    name = _name(loop)
    noted = _TRIP_COUNT.search(loop.statement.attributes)
    if noted:
        steps, length = int(noted[1]), Length.KNOWN
    else:
        steps, length = _counted(loop)
    is_skipped = length is Length.KNOWN and (noted or not _is_final(loop))
    if name in more.steps:
        steps, length = more.steps[name], Length.GIVEN
    recording = more.recordings.get(name)
    if recording is Recording.UNROLLED and is_skipped:
        tests = steps
    else:
        tests = 0 if is_skipped and recording is None else steps + 1
    return Loop(name, steps, length, tests)


def _name(loop: Instruction) -> str:
    """Return the name of a loop, before the compiler put it into a function."""
    callers = loop.computation.module.callers.get(loop.computation, ())
    if any(_SMALL_CALL.search(caller.statement.attributes) for caller in callers):
        return loop.computation.name.removesuffix(_HOISTED)
    return loop.name


def functions_of(module: Module, more: LoopFacts = NOTHING_MORE) -> frozenset[Instruction]:
    """Return the calls that the CPU compiler makes one function of each, and the loops that it will
    put into such calls. Source: EmitCallThunk, xla/service/cpu/thunk_emitter.cc.
    """
    return frozenset(
        computation.instructions[index]
        for computation in module.reachable()
        for index, statement in enumerate(computation.graph.statements)
        if (statement.opcode == "call" and _SMALL_CALL.search(statement.attributes))
        or (statement.opcode == "while" and statement.name in more.functions)
    )


def hoisted_loops(final: Module) -> frozenset[str]:
    """Return the names that the loops in functions had before they were put there. Source:
    xla/service/cpu/small_while_loop_hoisting_pass.cc.
    """
    return frozenset(
        callee.name.removesuffix(_HOISTED) for call in functions_of(final) for callee in call.called
    )


def _is_final(loop: Instruction) -> bool:
    """Return whether no pass comes that could note the number of steps."""
    return loop.computation.module.is_scheduled


def _counted(loop: Instruction) -> tuple[int, Length]:
    """Return the number of steps by the condition and the counter."""
    counts: dict[int, tuple[int, Length]] = loop.computation.cache("steps")
    if loop.index not in counts:
        counts[loop.index] = _count(loop)
    return counts[loop.index]


class _Value(NamedTuple):
    """An element of an instruction's value, inside of ``callers``, the innermost first."""

    instruction: Instruction
    indices: tuple[int, ...] = ()  # the outermost last
    callers: tuple[Instruction, ...] = ()

    def operand(self, number: int) -> _Value:
        return _resolve(_Value(self.instruction.operands[number], (), self.callers))

    @property
    def number(self) -> int | None:
        """The value of an integer constant."""
        literal = self.instruction.literal or ""
        is_number = not self.indices and _INTEGER.fullmatch(literal)
        return int(literal) if is_number else None


def _resolve(value: _Value) -> _Value:
    """Return what computes a value, through tuples, copies, calls and fusions. A parameter of a
    loop's computation is what is passed on from step to step.
    """
    for _ in range(_MOST_VISITED):
        instruction, indices, callers = value
        opcode = instruction.opcode
        if opcode == "get-tuple-element":
            index = int(instruction.attributes.get("index", "0"))
            value = _Value(instruction.operands[0], (*indices, index), callers)
        elif opcode == "tuple" and indices:
            value = _Value(instruction.operands[indices[-1]], indices[:-1], callers)
        elif opcode in _INLINED and instruction.called:
            value = _Value(instruction.called[0].root, indices, (instruction, *callers))
        elif opcode == "parameter" and (callers or _only_call(instruction)):
            caller, *outer = callers or _only_call(instruction)
            argument = caller.operands[instruction.parameter_number or 0]
            value = _Value(argument, indices, tuple(outer))
        elif opcode in _SAME and instruction.operands[0].shape.byte_size == (
            instruction.shape.byte_size
        ):
            value = _Value(instruction.operands[0], indices, callers)
        else:
            break
    return value


def _only_call(parameter: Instruction) -> tuple[Instruction, ...]:
    """Return the call of the computation around, if it is the only one."""
    callers = parameter.computation.module.callers.get(parameter.computation, ())
    return callers if len(callers) == 1 and callers[0].opcode in _INLINED else ()


def _count(loop: Instruction) -> tuple[int, Length]:
    by_role = {
        role: next(
            (computation for computation in loop.called if computation.name == name.lstrip("%")),
            None,
        )
        for role, name in loop.attributes.items()
        if role in ("condition", "body")
    }
    condition, body = by_role.get("condition"), by_role.get("body")
    if condition is None or body is None:
        return 1, Length.UNKNOWN
    counts: list[int] = []
    is_whole = True  # whether nothing but counters is looked at
    pending = [_resolve(_Value(condition.root))]
    for value in pending:  # grows on the way
        if value.instruction.opcode == "and" and len(pending) < _MOST_VISITED:
            pending += (value.operand(0), value.operand(1))
            continue
        count = _steps(value, loop, body)
        if count is None:
            is_whole = False
        else:
            counts.append(count)
    if not counts:
        return 1, Length.UNKNOWN
    return min(counts), Length.KNOWN if is_whole else Length.BOUND


def _steps(comparison: _Value, loop: Instruction, body: Computation) -> int | None:
    """Return how many steps it takes until a comparison is false, None if that is unclear."""
    is_negated = comparison.instruction.opcode == "not"
    if is_negated:
        comparison = comparison.operand(0)
    if comparison.instruction.opcode != "compare":
        return None
    direction = comparison.instruction.attributes.get("direction", "")
    if is_negated:
        direction = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE"}.get(direction, "")
    left, right = comparison.operand(0), comparison.operand(1)
    end = _constant(right, loop, body)
    counter = left
    if end is None:
        end, counter = _constant(left, loop, body), right
        direction = _MIRRORED.get(direction, "")
    counter, factor = _multiplied(counter)
    step = _step(counter, body)
    start = _resolve(_Value(loop.operands[0], counter.indices)).number
    if end is None or step is None or start is None:
        return None
    return _until(direction, start * factor, end, step * factor)


def _multiplied(value: _Value) -> tuple[_Value, int]:
    """Return what ``value`` is a constant multiple of, and the factor: the compiler counts by one
    where the program counts by more. Source: the pass simplify-while-loops.
    """
    if value.instruction.opcode == "multiply" and not value.indices:
        first, second = value.operand(0), value.operand(1)
        for counter, factor in ((first, second.number), (second, first.number)):
            if factor is not None:
                return counter, factor
    return value, 1


def _until(direction: str, start: int, end: int, step: int) -> int | None:
    """Return after how many steps ``start + steps * step`` no longer compares with ``end``; None if
    that never happens.
    """
    distance = end - start
    if direction == "NE":
        return distance // step if step and distance % step == 0 and distance // step >= 0 else None
    if direction in ("GT", "GE"):
        distance, step = -distance, -step
    elif direction not in ("LT", "LE"):
        return None
    if direction in ("LE", "GE"):
        distance += 1
    if distance <= 0:
        return 0
    return -(-distance // step) if step > 0 else None


def _constant(value: _Value, loop: Instruction, body: Computation) -> int | None:
    """Return a number that no step changes, None if ``value`` is none."""
    if value.number is not None or not _is_state(value):
        return value.number
    if _after_step(value, body) != (body.parameters[0], value.indices):
        return None
    return _resolve(_Value(loop.operands[0], value.indices)).number


def _step(counter: _Value, body: Computation) -> int | None:
    """Return what each step adds to an element of the state, None if that is no constant."""
    if not _is_state(counter) or not _INTEGERS.match(_type(counter)):
        return None
    change = _resolve(_Value(body.root, counter.indices))
    if change.instruction.opcode not in ("add", "subtract") or change.indices:
        return None
    before, by = change.operand(0), change.operand(1)
    if before.number is not None and change.instruction.opcode == "add":
        before, by = by, before
    if before[:2] != (body.parameters[0], counter.indices) or by.number is None:
        return None
    return by.number if change.instruction.opcode == "add" else -by.number


def _is_state(value: _Value) -> bool:
    """Return whether a value is an element of the state of the loop whose condition has it."""
    return value.instruction.opcode == "parameter" and not value.callers


def _type(value: _Value) -> str:
    shape = value.instruction.shape
    for index in reversed(value.indices):
        shape = shape.elements[index]
    return str(shape)


def _after_step(value: _Value, body: Computation) -> tuple[Instruction, tuple[int, ...]]:
    """Return what the element of the state is after a step."""
    return _resolve(_Value(body.root, value.indices))[:2]
