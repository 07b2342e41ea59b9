"""Where the collectives of a program come from: its partitioning for several devices.

Before that pass each instruction has a sharding, and the collectives are those of the program;
after it the module is that of one device. What the partitioner adds has the metadata of the operand
or of its user. Source: XLA's ``xla/service/spmd/spmd_partitioner.cc``,
``SpmdPartitioningVisitor`` and ``PartitionedHlo::Reshard``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fusionscope.dump import DumpedModule
from fusionscope.facts.source_lines import operation_of, user_line
from fusionscope.findings.collectives.facts import CollectiveCause, Sharding
from fusionscope.grouping import grouped
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.shardings import normal_sharding, tuple_shardings

_KINDS = frozenset(
    """all-gather all-reduce all-to-all collective-broadcast collective-permute ragged-all-to-all
    reduce-scatter""".split()
)
_PASSES = ("spmd-partitioning", "tpu-spmd-partitioning")
_DIVIDED = "_spmd"  # ends the name of an entry computation for one device
_SUMS = frozenset({"all-reduce", "reduce-scatter"})
_COMBINE = frozenset(
    """convolution dot dynamic-slice gather reduce reduce-window scatter
    select-and-scatter""".split()
)
_REACH_OVER = frozenset(
    "concatenate convolution pad reduce-window reverse select-and-scatter slice".split()
)
# Their results have other dimensions than their operands.
_CONTRACT = frozenset({"convolution", "dot", "reduce"})
_WHOLE_DIMENSION = re.compile(r"([\[,])1,(?=[\d,]*\])")
_MOST_STEPS = 1_000  # from an instruction to what sets its sharding
_CONSTRAINT = "sharding_constraint"
_WHOLE = frozenset({"{replicated}", "{manual}"})


def kind_of(instruction: Instruction) -> str:
    """Return the kind of a collective or of its start; nothing for what else there is."""
    kind = instruction.opcode.removesuffix("-start")
    return kind if kind in _KINDS else ""


def read_partitioning(module: DumpedModule) -> Partitioning | None:
    """Return how a module was partitioned; None if the dump lacks the stages around that pass.

    Raises ``UnusableInput`` if one of them cannot be read.
    """
    stages = module.stages
    for index, stage in enumerate(stages):
        if stage.name.after in _PASSES:
            earlier = map(module.read, reversed(stages[:index]))
            # On a TPU, the pass ends with a pipeline of its own, which has stages.
            before = next(
                (
                    instruction
                    for instruction in earlier
                    if not instruction.entry.name.endswith(_DIVIDED)
                ),
                None,
            )
            return Partitioning(before, module.read(stage)) if before is not None else None
    return None


@dataclass(frozen=True, slots=True)
class Origin:
    """Why there is a collective: ``before`` is the operand, and ``after`` its user."""

    cause: CollectiveCause
    source: str | None
    before: Sharding | None = None
    after: Sharding | None = None


UNKNOWN = Origin(CollectiveCause.UNKNOWN, None)


class Partitioning:
    """A module ``before`` and ``after`` it was partitioned."""

    def __init__(self, before: Module, after: Module) -> None:
        self._before, self._after = before, after

    def origin(self, collective: Instruction) -> Origin:
        """Return the origin of a collective of a later stage."""
        added = self._added(collective)
        return self._origin_of(added) if added is not None else UNKNOWN

    def _added(self, collective: Instruction) -> Instruction | None:
        """Return the collective that was there right after partitioning: passes keep the number of
        the channel, or the framework's name, to which inlining adds the names of callers.
        """
        candidates = self._collectives[kind_of(collective)]
        channel, name = collective.attributes.get("channel_id"), collective.op_name or ""
        by_channel = [
            instruction
            for instruction in candidates
            if instruction.attributes.get("channel_id") == channel
        ]
        by_name = [
            instruction
            for instruction in candidates
            if instruction.op_name and name.endswith(instruction.op_name)
        ]
        by_both = [instruction for instruction in by_channel if instruction in by_name]
        return next(iter(by_both or by_name or by_channel), None)

    @cached_property
    def _collectives(self) -> dict[str, list[Instruction]]:
        return grouped(
            (kind_of(instruction), instruction)
            for instruction in self._after.walk()
            if kind_of(instruction)
        )

    @cached_property
    def _by_key(self) -> dict[Hashable, list[Instruction]]:
        return grouped(
            (_key(instruction), instruction)
            for instruction in self._before.walk()
            if _key(instruction) is not None
        )

    def _origin_of(self, collective: Instruction) -> Origin:
        kind, key = kind_of(collective), _key(collective)
        alike = self._by_key[key] if key is not None else []
        call = next((instruction for instruction in alike if kind_of(instruction) == kind), None)
        if call is not None:
            return Origin(CollectiveCause.PROGRAM, _line(call))
        if kind in _SUMS:
            combined = next(
                (instruction for instruction in alike if instruction.opcode in _COMBINE), None
            )
            if combined is not None:
                return Origin(CollectiveCause.SUM, _line(combined), _sharding(combined, ()))
        for operand, user in self._resharded(collective, alike):
            before, after = _sharding(operand, (user,)), _sharding(user, (operand,), operand)
            return Origin(CollectiveCause.RESHARDING, _line(user), before, after)
        source = next(filter(None, map(_line, alike)), None)
        if kind == "collective-permute" and any(
            instruction.opcode in _REACH_OVER for instruction in alike
        ):
            return Origin(CollectiveCause.NEIGHBOURS, source)
        return Origin(CollectiveCause.UNKNOWN, source)

    def _resharded(
        self, collective: Instruction, alike: Sequence[Instruction]
    ) -> Iterator[tuple[Instruction, Instruction]]:
        """Yield operands and users of different shardings between which a collective may be. Its
        metadata are those of one of both (``alike``), or it has none, as the operand has none.
        """
        key = _key(collective)
        later = _nearest(collective, lambda instruction: instruction.users)
        for operand in alike:
            for user in operand.users:
                if _key(user) in later | {key, None} and _is_resharded(operand, user):
                    yield operand, user
        earlier = _nearest(collective, lambda instruction: instruction.operands)
        for user in alike:
            for operand in user.operands:
                if _key(operand) in earlier and _is_resharded(operand, user):
                    yield operand, user
        if key is None:
            for user in (user for key in later for user in self._by_key[key]):
                for operand in user.operands:
                    if _key(operand) is None and _is_resharded(operand, user):
                        yield operand, user


def _key(instruction: Instruction) -> Hashable | None:
    """Return what an instruction has in common with those that the partitioner makes of it."""
    name = instruction.op_name
    return (name, instruction.stack) if name is not None else None


def _line(instruction: Instruction) -> str | None:
    place = user_line(instruction.stack)
    return str(place) if place is not None else None


def _nearest(
    instruction: Instruction, neighbours: Callable[[Instruction], Iterable[Instruction]]
) -> set[Hashable]:
    """Return the keys of the nearest instructions, along ``neighbours``, that have another."""
    keys: set[Hashable] = set()
    visited, pending = {instruction}, [instruction]
    while pending:
        for neighbour in neighbours(pending.pop()):
            key = _key(neighbour)
            if key is not None and key != _key(instruction):
                keys.add(key)
            elif neighbour not in visited:
                visited.add(neighbour)
                pending.append(neighbour)
    return keys


def _text(instruction: Instruction, operand: Instruction | None = None) -> str:
    """Return the sharding of the result of an instruction, or of its part for an ``operand``."""
    text = instruction.attributes.get("sharding", "")
    index: int | None = None
    if instruction.opcode == "get-tuple-element" and not text:
        text = instruction.operands[0].attributes.get("sharding", "")
        index = int(instruction.attributes["index"])
    elif instruction.opcode in ("tuple", "while") and operand in instruction.operands:
        index = instruction.operands.index(operand)
    elements = tuple_shardings(text)
    if index is not None and index < len(elements):
        return elements[index]
    return text or "{replicated}"


def _is_resharded(operand: Instruction, user: Instruction) -> bool:
    text = _text(user, operand)
    before, after = normal_sharding(_text(operand)), normal_sharding(text)
    if before in _WHOLE or before in map(normal_sharding, tuple_shardings(text)):
        return False
    if len(operand.shape.dimensions) != len(user.shape.dimensions):
        before, after = (_WHOLE_DIMENSION.sub(r"\1", text) for text in (before, after))
    return user.opcode in _CONTRACT or before != after


def _sharding(
    instruction: Instruction, apart: Sequence[Instruction], operand: Instruction | None = None
) -> Sharding:
    text = _text(instruction, operand)
    return Sharding(operation_of(instruction), text, _set_by(instruction, text, apart))


def _set_by(instruction: Instruction, text: str, apart: Sequence[Instruction]) -> str | None:
    """Return what in the program has the sharding ``text``, the nearest to an instruction: first
    among those that all have it, then among those that are split at all. ``apart`` is where
    another begins.
    """
    sharding = normal_sharding(text)
    is_same, is_split = sharding.__eq__, lambda text: text not in _WHOLE
    for may_pass in (is_same,) if sharding in _WHOLE else (is_same, is_split):
        visited, pending = {instruction, *apart}, deque([instruction])
        while pending and len(visited) < _MOST_STEPS:
            step = pending.popleft()
            if _is_given(step):
                return step.op_name or step.name
            if (step.op_name or "").rpartition("/")[2] == _CONSTRAINT:
                return _line(step)
            for neighbour in _neighbours(step):
                if neighbour not in visited and may_pass(normal_sharding(_text(neighbour))):
                    visited.add(neighbour)
                    pending.append(neighbour)
    return None


def _neighbours(instruction: Instruction) -> Iterator[Instruction]:
    """Yield operands and users; what a loop carries is the same in it and around it."""
    for neighbour in (*instruction.operands, *instruction.users):
        if neighbour.opcode not in ("parameter", "tuple", "while") or _is_given(neighbour):
            yield neighbour
    for loop, index in _carried(instruction):
        body = next(instruction for instruction in loop.called if instruction.root.shape.elements)
        for tuple_ in (loop.operands[0], body.root):
            if tuple_.opcode == "tuple":
                yield tuple_.operands[index]
        for whole in (loop, body.parameters[0]):
            for user in whole.users:
                if user.attributes.get("index") == str(index):
                    yield user


def _carried(instruction: Instruction) -> Iterator[tuple[Instruction, int]]:
    """Yield the loops that carry a value, and its place among what they carry."""
    callers = instruction.computation.module.callers.get(instruction.computation, ())
    loops = [caller for caller in callers if caller.opcode == "while"]
    if instruction.opcode == "get-tuple-element":
        (whole,) = instruction.operands
        around = {"while": [whole], "parameter": loops}.get(whole.opcode, [])
        yield from ((loop, int(instruction.attributes["index"])) for loop in around)
    for user in instruction.users:
        if user.opcode == "tuple":
            around = [instruction for instruction in user.users if instruction.opcode == "while"]
            for loop in around + (loops if user.is_root else []):
                yield loop, user.operands.index(instruction)


def _is_given(instruction: Instruction) -> bool:
    """Return whether it is an argument of the program."""
    computation = instruction.computation
    return instruction.opcode == "parameter" and computation is computation.module.entry
