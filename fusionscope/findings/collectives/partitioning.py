"""Where the collectives of a program come from: its partitioning for several devices.

Before that pass each instruction has a sharding, and the collectives are those of the program;
after it the module is that of one device. What the partitioner adds has the metadata of the operand
or of its user. Source: XLA's ``xla/service/spmd/spmd_partitioner.cc``,
``SpmdPartitioningVisitor`` and ``PartitionedHlo::Reshard``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fusionscope.dump import DumpedModule
from fusionscope.findings.collectives.facts import CollectiveCause, Sharding
from fusionscope.findings.collectives.setting import described, line_of, sharding_of
from fusionscope.findings.collectives.splitting import (
    is_resharded,
    reaches_over,
    split_operand,
    works_along_split,
)
from fusionscope.grouping import grouped
from fusionscope.hlo import Instruction, Module

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
        the channel, or the framework's name, to which inlining adds the names of callers. Of
        several with one name, it is that with the same operands. For TPUs,
        ``reduce-scatter-decomposer`` makes an all-reduce of a reduce-scatter, and
        ``tpu-all-reduce-scatter-fusion`` may add a collective-permute; neither keeps a name.
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
        scatters = self._collectives["reduce-scatter"]
        if not candidates and len(scatters) == 1:
            return scatters[0]
        operands = _nearest(collective, lambda instruction: instruction.operands)
        return max(
            by_both or by_name or by_channel,
            key=lambda candidate: len(
                operands & _nearest(candidate, lambda instruction: instruction.operands)
            ),
            default=None,
        )

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
            return Origin(CollectiveCause.PROGRAM, line_of(call))
        if kind in _SUMS:
            combined = next(
                (instruction for instruction in alike if instruction.opcode in _COMBINE), None
            )
            if combined is not None:
                operand = split_operand(combined)
                return Origin(
                    CollectiveCause.SUM,
                    line_of(combined),
                    sharding_of(operand, (combined,)),
                    sharding_of(combined, (operand,)),
                )
        readers = [user for instruction in alike for user in instruction.users]
        for instruction in (*alike, *readers):
            if kind == "collective-permute" and reaches_over(instruction):
                return Origin(CollectiveCause.NEIGHBOURS, line_of(instruction))
            if kind != "collective-permute" and works_along_split(instruction):
                before = sharding_of(instruction.operands[0], ())
                return Origin(CollectiveCause.WHOLE, line_of(instruction), before)
        for operand, user in self._resharded(collective, alike):
            before, after = sharding_of(operand, (user,)), sharding_of(user, (operand,), operand)
            return Origin(CollectiveCause.RESHARDING, line_of(user), before, after)
        for instruction in filter(reaches_over, alike):
            return Origin(CollectiveCause.NEIGHBOURS, line_of(instruction))
        return Origin(CollectiveCause.UNKNOWN, next(filter(None, map(line_of, alike)), None))

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
                if _key(user) in later | {key, None} and is_resharded(operand, user):
                    yield operand, user
        earlier = _nearest(collective, lambda instruction: instruction.operands)
        for user in alike:
            for operand in user.operands:
                if _key(operand) in earlier | {None} and is_resharded(operand, user):
                    yield operand, user
        if key is None:
            for user in (user for key in later for user in self._by_key[key]):
                for operand in user.operands:
                    if _key(operand) is None and is_resharded(operand, user):
                        yield operand, user
            for operand in (operand for key in earlier for operand in self._by_key[key]):
                for user in _readers(operand):
                    if _key(user) is None and is_resharded(operand, user):
                        yield operand, user


def _key(instruction: Instruction) -> Hashable | None:
    """Return what an instruction has in common with those that the partitioner makes of it."""
    instruction = described(instruction)
    name = instruction.op_name
    return (name, instruction.stack) if name is not None else None


def _readers(instruction: Instruction) -> Iterator[Instruction]:
    """Yield the users of an instruction, and what reads it as an element of a tuple."""
    for user in instruction.users:
        yield user
        if user.opcode == "tuple":
            index = str(user.operands.index(instruction))
            yield from (
                element for element in user.users if element.attributes.get("index") == index
            )


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
