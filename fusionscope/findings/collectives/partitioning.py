"""Where the collectives of a program come from: its partitioning for several devices.

Before that pass each instruction has a sharding, and the collectives are those of the program;
after it the module is that of one device. What the partitioner adds has the metadata of the operand
or of its user. Source: XLA's ``xla/service/spmd/spmd_partitioner.cc``,
``SpmdPartitioningVisitor`` and ``PartitionedHlo::Reshard``.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from fusionscope.dump import DumpedModule
from fusionscope.facts.source_lines import operation_of, user_line
from fusionscope.findings.collectives.facts import CollectiveCause, Sharding
from fusionscope.grouping import grouped
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.shardings import normal_sharding, tuple_shardings
from fusionscope.hlo.window import read_window

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
_TILES = re.compile(r"\{devices=\[([\d,]+)\]")
_MOST_STEPS = 1_000  # from an instruction to what sets its sharding
_SETTERS = frozenset({"reshard", "shard_map", "sharding_constraint"})
_WHOLE = frozenset({"{replicated}", "{manual}"})
_SHARDING_CALLS = ("SPMD", "Sharding", "xla.sdy")
_OUTPUTS = "allow_spmd_sharding_propagation_to_output"  # what is not allowed, the program sets
_RESULT = "the result"
_PASS_ON = frozenset({"call", "conditional", "opt-barrier", "while"})


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
        readers = [user for instruction in alike for user in instruction.users]
        for instruction in (*alike, *readers):
            if kind == "collective-permute" and _reaches_over(instruction):
                return Origin(CollectiveCause.NEIGHBOURS, _line(instruction))
            if kind != "collective-permute" and _works_along_split(instruction):
                before = _sharding(instruction.operands[0], ())
                return Origin(CollectiveCause.WHOLE, _line(instruction), before)
        for operand, user in self._resharded(collective, alike):
            before, after = _sharding(operand, (user,)), _sharding(user, (operand,), operand)
            return Origin(CollectiveCause.RESHARDING, _line(user), before, after)
        return Origin(CollectiveCause.UNKNOWN, next(filter(None, map(_line, alike)), None))

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
                if _key(operand) in earlier | {None} and _is_resharded(operand, user):
                    yield operand, user
        if key is None:
            for user in (user for key in later for user in self._by_key[key]):
                for operand in user.operands:
                    if _key(operand) is None and _is_resharded(operand, user):
                        yield operand, user


def _key(instruction: Instruction) -> Hashable | None:
    """Return what an instruction has in common with those that the partitioner makes of it."""
    instruction = _described(instruction)
    name = instruction.op_name
    return (name, instruction.stack) if name is not None else None


def _described(instruction: Instruction) -> Instruction:
    """Return what has the metadata of an instruction: ``tuple#1`` has those of the tuple."""
    if instruction.opcode == "get-tuple-element" and instruction.op_name is None:
        return instruction.operands[0]
    return instruction


def _line(instruction: Instruction) -> str | None:
    """Return the line of an instruction, or of the nearest user or operand that has one."""
    for neighbours in (_users_of, _operands_of):
        visited, pending = {instruction}, deque([instruction])
        while pending and len(visited) < _MOST_STEPS:
            step = pending.popleft()
            place = user_line(_described(step).stack)
            if place is not None:
                return str(place)
            pending.extend(neighbour for neighbour in neighbours(step) if neighbour not in visited)
            visited.update(pending)
    return None


def _users_of(instruction: Instruction) -> Sequence[Instruction]:
    return instruction.users


def _operands_of(instruction: Instruction) -> Sequence[Instruction]:
    return instruction.operands


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
    if user.opcode == "get-tuple-element":
        return False  # a part of the same value
    text = _text(user, operand)
    before, after = normal_sharding(_text(operand)), normal_sharding(text)
    if before in _WHOLE or before in map(normal_sharding, tuple_shardings(text)):
        return False
    if user.shape.is_array and operand.shape.rank != user.shape.rank:
        spans = user.opcode == "reshape"
        before, after = (
            str((_splits(instruction, text, spans=spans), text.partition("]")[2]))
            for instruction, text in ((operand, before), (user, after))
        )
    return user.opcode in _CONTRACT or before != after


def _tiles(text: str) -> tuple[int, ...]:
    """Return into how many parts each dimension is split; nothing if none is, or for a tuple."""
    match = _TILES.match(normal_sharding(text))
    return tuple(map(int, match[1].split(","))) if match is not None else ()


def _splits(instruction: Instruction, text: str, *, spans: bool) -> list[tuple[int, int]]:
    """Return into how many parts each dimension is cut that is, and how many elements these span,
    or nothing for ``spans`` that do not matter.
    """
    sizes = instruction.shape.dimensions
    return [
        (count, prod(size or 1 for size in sizes[place:]) if spans else 0)
        for place, count in enumerate(_tiles(text)[: len(sizes)])
        if count > 1
    ]


def _reaches_over(instruction: Instruction) -> bool:
    """Return whether an operation that is split as its operand is reads what is beside a part."""
    return instruction.opcode in _REACH_OVER and normal_sharding(_text(instruction)) in (
        normal_sharding(_text(operand)) for operand in instruction.operands
    )


def _works_along_split(instruction: Instruction) -> bool:
    """Return whether an operation needs all of a dimension along which its operand is split."""
    if not instruction.operands:
        return False
    tiles = _tiles(_text(instruction.operands[0]))
    return any(size > 1 for size in itertools.compress(tiles, _worked_along(instruction)))


def _worked_along(instruction: Instruction) -> Sequence[bool]:
    """Return for each dimension of the first operand whether an operation works along it."""
    every = range(instruction.operands[0].shape.rank)
    attributes = instruction.attributes
    match instruction.opcode:
        case "sort":
            return [f"{{{place}}}" == attributes["dimensions"] for place in every]
        case "reduce-window":
            return [part.size > 1 for part in read_window(attributes["window"])]
        case "fft":
            count = attributes["fft_length"].count(",") + 1
            return [place >= len(every) - count for place in every]
        case "cholesky" | "triangular-solve":
            return [place >= len(every) - 2 for place in every]
        case "custom-call":
            target = attributes.get("custom_call_target", "").strip('"')
            if target == "TopK":
                return [place == len(every) - 1 for place in every]
            return [not target.startswith(_SHARDING_CALLS) for _ in every]
    return ()


def _sharding(
    instruction: Instruction, apart: Sequence[Instruction], operand: Instruction | None = None
) -> Sharding:
    text = _text(instruction, operand)
    return Sharding(operation_of(instruction), text, _set_by(instruction, text, apart))


def _set_by(instruction: Instruction, text: str, apart: Sequence[Instruction]) -> str | None:
    """Return what in the program has the sharding ``text``, the nearest to an instruction: first
    among those that all have it, then a result of the program that is asked for so, then among
    those that are split at all. ``apart`` is where another begins.
    """
    sharding = normal_sharding(text)
    is_same, is_split = sharding.__eq__, lambda text: text not in _WHOLE
    for may_pass in (is_same,) if sharding in _WHOLE else (is_same, is_split):
        visited, pending = {instruction, *apart}, deque([instruction])
        while pending and len(visited) < _MOST_STEPS:
            step = pending.popleft()
            if _is_given(step):
                return step.op_name or step.name
            if (step.op_name or "").rpartition("/")[2] in _SETTERS:
                return _line(step)
            for neighbour in _neighbours(step):
                if neighbour not in visited and may_pass(normal_sharding(_text(neighbour))):
                    visited.add(neighbour)
                    pending.append(neighbour)
        if any(_is_result_asked_for(step, sharding) for step in visited):
            return _RESULT
    return None


def _neighbours(instruction: Instruction) -> Iterator[Instruction]:
    """Yield operands and users; what loops, conditionals and calls pass on is the same inside."""
    for neighbour in (*instruction.operands, *instruction.users):
        if neighbour.opcode not in _PASS_ON | {"parameter", "tuple"} or _is_given(neighbour):
            yield neighbour
    for whole, index in _places(instruction):
        for same in _passed_on(whole):
            if index is None:
                yield same
                continue
            if same.opcode == "tuple":
                yield same.operands[index]
            yield from (user for user in same.users if user.attributes.get("index") == str(index))


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
    called, operands = caller.called, caller.operands
    match caller.opcode:
        case "while":
            bodies = [body for body in called if body.root.shape == caller.shape]
            states = [state for body in bodies for state in (*body.parameters, body.root)]
            yield caller, *operands, *states
        case "conditional":
            yield caller, *(branch.root for branch in called)
            for operand, branch in zip(operands[1:], called, strict=False):
                yield operand, *branch.parameters
        case "call":
            yield caller, *(body.root for body in called)
            yield from zip(operands, *(body.parameters for body in called), strict=False)
        case _:
            yield caller, *operands


def _is_given(instruction: Instruction) -> bool:
    """Return whether it is an argument of the program."""
    computation = instruction.computation
    return instruction.opcode == "parameter" and computation is computation.module.entry


def _is_result_asked_for(instruction: Instruction, sharding: str) -> bool:
    """Return whether it is a result of the program, which says how that is split."""
    module = instruction.computation.module
    root = module.entry.root
    results = root.operands if root.opcode == "tuple" else (root,)
    if instruction not in results or normal_sharding(_text(instruction)) != sharding:
        return False
    may_choose = module.attributes.get(_OUTPUTS, "{false}").strip("{}").split(",")
    return may_choose[min(results.index(instruction), len(may_choose) - 1)] == "false"
