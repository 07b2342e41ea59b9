"""Names the operation that can never be in a fusion, if the rule itself does not.

The compiler blames one of the two ends of a pair. If an earlier pass gave that end a kernel, the
decision of that pass says more (``reasons.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.history.kernels import KernelKind, kind_and_emitter, operations_in
from fusionscope.history.library_calls import HEROES, library_of, taken_by
from fusionscope.history.outcomes import is_looked_through
from fusionscope.hlo import Instruction
from fusionscope.hlo.search import reachable
from fusionscope.passes.causes import (
    BY_OPCODE,
    Barrier,
    Cause,
    Collective,
    ControlFlow,
    LibraryCall,
    OtherCustomCall,
    OwnKernel,
    SecondDot,
    SeveralResults,
    SideEffect,
    Sort,
    SplitSum,
    ThroughTuple,
    Transfer,
)
from fusionscope.passes.rule import Number
from fusionscope.reasons.evidence import Reason

PRODUCER, CONSUMER = "producer", "consumer"

# Rules that only say that one end can never be fused, and the end; None if it is in their message,
# or nothing says which.
CAUSELESS: dict[str, str | None] = {
    "base-eligible": None,
    "cpu-loop-fusible-producer": PRODUCER,
    "cpu-no-case": CONSUMER,
    "cpu-skip-custom": CONSUMER,
    "leg-fm-custom": CONSUMER,
    "leg-if-custom": CONSUMER,
    "leg-pc-consumer": CONSUMER,
    "leg-pc-producer": PRODUCER,
    "pf-is-fusible": None,
}

# These stay outside whatever the other end is. A pass may fuse the others.
_ANYWHERE = (Collective, ControlFlow, SideEffect, Sort, Transfer)
_WITHIN_TUPLES = ThroughTuple.opcodes


# What the pass for dots says of any operation that it never fuses, such as another dot.
_OF_OPERATIONS = frozenset(
    {"gf-fusible", "gf-opcode", "gf-operation", "Unimplemented instruction.", "Unsupported opcode."}
)


def end_at_fault(reason: Reason) -> str | None:
    """Return the end that a rule of ``CAUSELESS`` is about, or None if that is unknown."""
    end_in_rule = CAUSELESS[reason.rule]
    if end_in_rule is not None:
        return end_in_rule
    return next((end for end in (PRODUCER, CONSUMER) if f"the {end} is" in reason.message), None)


def has_cause(instruction: Instruction) -> bool:
    """Return whether a cause is known for operations of this kind."""
    return instruction.opcode in BY_OPCODE or instruction.opcode == "fusion"


def is_outside_anywhere(instruction: Instruction) -> bool:
    """Return whether no pass of any backend fuses an operation of this kind."""
    cause = BY_OPCODE.get(instruction.opcode)
    return cause is not None and issubclass(cause, _ANYWHERE)


def cause_at_dot(
    decided: Reason, producer: Instruction, consumer: Instruction, pair_consumer: Instruction
) -> type[Cause] | None:
    """Return the cause for a pair at a fusion of a dot if the rule of ``decided`` is about the
    operation alone, else None. ``producer`` and ``consumer`` are what the main pass found there,
    ``pair_consumer`` is the consumer before that pass.
    """
    if decided.rule not in _OF_OPERATIONS and decided.message not in _OF_OPERATIONS:
        return None
    if adds_up_parts(pair_consumer):
        return SplitSum
    return SecondDot if _holds_dot(producer) and _holds_dot(consumer) else None


def _holds_dot(instruction: Instruction) -> bool:
    return "dot" in operations_in(instruction)


def passes_barrier(consumer: Instruction) -> bool:
    """Return whether a barrier is between the consumer of a pair and its operand."""
    operands = reachable(
        consumer.operands, lambda value: value.operands if is_looked_through(value) else ()
    )
    return any(operand.opcode in Barrier.opcodes for operand in operands)


def unfusible_opcode(reason: Reason) -> str | None:
    """Return the opcode that a replay found unfusible, if it reports one."""
    numbers = dict(reason.numbers)
    names = ("unfusible", "opcode", PRODUCER, CONSUMER)
    return next((str(numbers[name]) for name in names if name in numbers), None)


def cause_of(
    instruction: Instruction, end: str, opcode: str | None, backend: str | None
) -> tuple[type[Cause], tuple[tuple[str, Number], ...]]:
    """Return the cause that keeps ``instruction``, the ``end`` of a pair, out of a fusion with the
    other end, and its numbers. ``opcode`` is that of the instruction that the compiler met there,
    if known: a barrier or a tuple may be between the two.
    """
    kind, emitter = kind_and_emitter(instruction, backend)
    inside = operations_in(instruction)
    cause_inside = next(
        (BY_OPCODE[opcode_inside] for opcode_inside in inside if opcode_inside in BY_OPCODE), None
    )
    if (
        instruction.opcode == "custom-call"
        or kind is KernelKind.LIBRARY
        or cause_inside is LibraryCall
    ):
        return _called(instruction, end, kind, emitter, backend)
    if cause_inside is not None:
        names = [opcode_inside for opcode_inside in inside if opcode_inside in cause_inside.opcodes]
        return cause_inside, ((end, names[0]),)
    cause_of_opcode = BY_OPCODE.get(opcode or "")
    if opcode in _WITHIN_TUPLES and instruction.shape.is_tuple and end == PRODUCER:
        return SeveralResults, ((end, ", ".join(dict.fromkeys(inside))),)
    if cause_of_opcode is not None:
        return cause_of_opcode, ((end, str(opcode)),)
    return OwnKernel, ((end, ", ".join(dict.fromkeys(inside)) or instruction.opcode),)


def _readers(call: Instruction) -> Iterator[Instruction]:
    """Return the readers of the first result of a call, which may have other results."""
    for user in call.users:
        if user.opcode != "get-tuple-element":
            yield user
        elif user.attributes.get("index") == "0":
            yield from user.users


def _called(
    call: Instruction, end: str, kind: KernelKind, emitter: str, backend: str | None
) -> tuple[type[Cause], tuple[tuple[str, Number], ...]]:
    inside = call.called[0].instructions if call.opcode == "fusion" and call.called else (call,)
    hero = next((i for i in inside if i.opcode in HEROES or i.opcode == "custom-call"), None)
    target = emitter
    if hero is not None and hero.opcode == "custom-call":
        kind, target = kind_and_emitter(hero, backend)
        if kind is KernelKind.CUSTOM_CALL:
            return OtherCustomCall, ((end, target),)
    library = library_of(target, hero.opcode if hero is not None else "", backend or "")
    computes = library.computes or ", ".join(dict.fromkeys(operations_in(call)))
    numbers: list[tuple[str, Number]] = [(end, f"{computes} by {library.name}")]
    if end == PRODUCER and library.takes:
        numbers.append(("takes", " + ".join(sorted(library.takes))))
        steps_taken = [step.text for step in taken_by(hero)] if hero is not None else []
        numbers.append(("took", " + ".join(steps_taken) or "none of these"))
        readers = sum(1 for _ in _readers(call))
        if readers > 1:
            numbers.append(("read_by", f"{readers} operations"))
    return LibraryCall, tuple(numbers)


def adds_up_parts(operation: Instruction) -> bool:
    """Return whether it is the reduce that the compiler adds behind a product that it splits. Only
    its name shows it (xla/backends/gpu/transforms/splitk_rewriter.cc).
    """
    reducer = operation.attributes.get("to_apply", "").lstrip("%")
    return reducer.startswith("dot") and "reduce_sub_computation" in reducer
