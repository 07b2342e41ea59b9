"""Finds the successors of instructions after a pass that rewrote their surroundings.

A matching pairs instructions that compute the same or kept enough of their neighbours. But a
partitioner changes every shape, a simplifier moves reshapes across operations, and a combiner sends
many arrays together. The instructions that such a pass removed live on in those that it inserted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator

from fusionscope.history.flow import Region
from fusionscope.history.matching import PLACES, Matching
from fusionscope.history.operations import COLLECTIVES
from fusionscope.hlo import Computation, Instruction
from fusionscope.hlo.views import COPIES

# Operations that give the elements of their operand in another arrangement or type.
_VIEWS = COPIES | {"convert", "transpose"}
_MOST_USERS = 64  # a value with more users identifies none of them


def find_successors(matching: Matching) -> dict[Instruction, tuple[Instruction, ...]]:
    """Return inserted instructions by the removed ones that live on in them.

    A successor has the opcode of the removed instruction, and it

    - has the same number, if it is a parameter of the program;
    - sends the same operand, alone or with others, if it is a collective;
    - is read in the same place, if it is a call;
    - reads the same, or is read in the same place, with any views in between: instructions with the
      same metadata (the framework's name and line) come first; or
    - has the same metadata, if as many instructions have it on both sides, or one on either side.
    """
    return _Heirs(matching).find()


def sends_alike(first: Instruction, second: Instruction) -> bool:
    """Return whether both are collectives of one kind, or the starts of such."""
    opcode = _base_opcode(first)
    return opcode in COLLECTIVES and opcode == _base_opcode(second)


def _base_opcode(instruction: Instruction) -> str:
    return instruction.opcode.removesuffix("-start")


class _Flow:
    """The operations of a module with their operands and users, across fusions."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self.regions = tuple(regions)
        self._places: dict[Instruction, tuple[Region, int]] = {}
        self._results: dict[Computation, dict[int, Instruction]] = {}
        for region in self.regions:
            for index, operation in enumerate(region.operations):
                self._places.setdefault(operation, (region, index))

    def sources(self, operation: Instruction) -> tuple[Instruction, ...]:
        region, index = self._places[operation]
        return tuple([self._seen_through(region.operations[s]) for s in region.sources[index]])

    def users(self, operation: Instruction) -> Iterator[tuple[Instruction, int]]:
        region, index = self._places[operation]
        for user, slot in region.users[index][:_MOST_USERS]:
            yield region.operations[user], slot

    def outputs(self, operation: Instruction) -> tuple[Computation, set[int]]:
        """Return the region of an operation and the indices of its results in it."""
        region, index = self._places[operation]
        return region.computation, region.outputs.get(index, set())

    def results(self, computation: Computation) -> dict[int, Instruction]:
        """Return the instructions that give the results of a region, by index."""
        results = self._results.get(computation)
        if results is None:
            results = self._results[computation] = {
                slot: self._seen_through(region.operations[index])
                for region in self.regions
                if region.computation is computation
                for index, slots in region.outputs.items()
                for slot in slots
            }
        return results

    def _seen_through(self, operation: Instruction) -> Instruction:
        """Return the collective whose element ``operation`` is."""
        region, index = self._places[operation]
        if operation.opcode == "get-tuple-element" and region.sources[index]:
            whole = region.operations[region.sources[index][0]]
            return whole if _base_opcode(whole) in COLLECTIVES else operation
        return operation

    def viewed(self, operation: Instruction) -> Instruction:
        """Return the instruction that ``operation`` is a view of."""
        while operation.opcode in _VIEWS and (sources := self.sources(operation)):
            operation = sources[0]
        return operation


class _Heirs:
    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self._found: dict[Instruction, tuple[Instruction, ...]] = {}
        self._flows = tuple(_Flow(regions.values()) for regions in matching.regions)
        alive = [set(module.reachable()) for module in matching.modules]
        self._alive = alive[1]
        self._removed, inserted = (
            [
                operation
                for region in flow.regions
                for operation in dict.fromkeys(region.operations)
                if operation.computation in computations
                and operation not in matching.idle
                and operation.opcode not in PLACES
                and operation.opcode != "constant"
            ]
            for flow, computations in zip(self._flows, alive, strict=True)
        )
        self._removed = [
            instruction for instruction in self._removed if not self._later(instruction)
        ]
        self._inserted = {
            instruction: None
            for instruction in inserted
            if instruction not in matching.before and instruction not in matching.copies
        }
        # A collective that sends more than before may already be matched.
        senders = {
            instruction: None
            for instruction in inserted
            if _base_opcode(instruction) in COLLECTIVES
        }
        self._readers: dict[Instruction, list[Instruction]] = defaultdict(list)
        flow = self._flows[1]
        for operation in self._inserted | senders:
            for source in dict.fromkeys(map(flow.viewed, flow.sources(operation))):
                self._readers[source].append(operation)

    def find(self) -> dict[Instruction, tuple[Instruction, ...]]:
        self._parameters()
        self._collectives()
        self._calls()
        if self._removed and self._inserted:
            self._structure(_same_metadata)
            while self._metadata() and self._structure(_same_metadata):
                pass
            self._structure(_same_opcode)
        return self._found

    def _later(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """Return the known living successors of an instruction of the first module."""
        matching = self._matching
        successor = matching.after.get(instruction) or matching.merged.get(instruction)
        if (
            successor is None
            or successor in matching.idle
            or successor.computation not in self._alive
        ):
            return self._found.get(instruction, ())
        return (successor,)

    def _left(self) -> list[Instruction]:
        return [instruction for instruction in self._removed if instruction not in self._found]

    def _parameters(self) -> None:
        old_parameters, new_parameters = (
            module.entry.parameters for module in self._matching.modules
        )
        if len(old_parameters) == len(new_parameters):
            for before, after in zip(old_parameters, new_parameters, strict=True):
                if before not in self._matching.after and after not in self._matching.before:
                    self._found[before] = (after,)

    def _collectives(self) -> None:
        for before in self._left():
            if _base_opcode(before) in COLLECTIVES:
                successors = [
                    after
                    for sources in self._read_later(before)
                    for source in sources
                    for after in self._readers[source]
                    if sends_alike(before, after)
                ]
                if successors:
                    self._found[before] = tuple(dict.fromkeys(successors))

    def _calls(self) -> None:
        """Find the successors of calls among the instructions that read one, since values flow
        through calls. Each caller gets its own copy of a shared computation.
        """
        matching = self._matching
        for before in matching.modules[0].walk():
            if before.opcode != "call" or before in matching.after or before in matching.merged:
                continue
            successors: dict[Instruction, None] = {}
            for user in before.users:
                later = matching.after.get(user)
                if later is not None and len(later.operands) == len(user.operands):
                    for old, new in zip(user.operands, later.operands, strict=True):
                        if old is before and new.opcode == "call" and new not in matching.before:
                            successors[new] = None
            counterpart = matching.computations.get(before.computation)
            if before.is_root and counterpart is not None and counterpart.root.opcode == "call":
                successors[counterpart.root] = None
            if len(successors) == 1:
                self._found[before] = tuple(successors)

    def _read_later(self, before: Instruction) -> list[set[Instruction]]:
        """Return the operands of an instruction in the second module, with views skipped."""
        old_flow, new_flow = self._flows
        return [
            set(map(new_flow.viewed, self._later(old_flow.viewed(source))))
            for source in old_flow.sources(before)
        ]

    def _structure(self, is_same: Callable[[Instruction, Instruction], bool]) -> bool:
        """Add successors by their operands, from parameters to results, and by their users, from
        results to parameters, until there are no more. Return whether any was added.
        """
        count = len(self._found)
        while True:
            count_before = len(self._found)
            for before in self._left():
                self._take(before, (a for a in self._by_operands(before) if is_same(before, a)))
            for before in reversed(self._left()):
                self._take(before, (a for a in self._by_place(before) if is_same(before, a)))
            if len(self._found) == count_before:
                return count_before > count

    def _take(self, before: Instruction, candidates: Iterable[Instruction]) -> None:
        unique = tuple(dict.fromkeys(candidates))
        if len(unique) == 1:
            self._found[before] = unique

    def _by_operands(self, before: Instruction) -> Iterator[Instruction]:
        """Yield instructions that have the operands of ``before``."""
        read = self._read_later(before)
        flow = self._flows[1]
        if not read or not all(read):
            return
        counts = [sum(len(self._readers[source]) for source in own_sources) for own_sources in read]
        if min(counts) > _MOST_USERS:
            return
        least_read = read[counts.index(min(counts))]
        for after in (reader for source in least_read for reader in self._readers[source]):
            sources = flow.sources(after)
            if (
                after in self._inserted
                and len(sources) == len(read)
                and all(
                    flow.viewed(own_sources) in expected
                    for own_sources, expected in zip(sources, read, strict=True)
                )
            ):
                yield after

    def _by_place(self, before: Instruction) -> Iterator[Instruction]:
        """Yield instructions that are read in the place of ``before``."""
        old_flow, new_flow = self._flows
        pending, visited = [before], {before}
        while pending:
            here = pending.pop()
            computation, slots = old_flow.outputs(here)
            counterpart = self._matching.computations.get(computation)
            if slots and counterpart is not None:
                results = new_flow.results(counterpart)
                for slot in slots & results.keys():
                    yield from self._views(results[slot], before)
            for user, slot in old_flow.users(here):
                laters = self._later(user)
                for later in laters:
                    sources = new_flow.sources(later)
                    if slot < len(sources) == len(old_flow.sources(user)):
                        yield from self._views(sources[slot], before)
                if not laters and user.opcode in _VIEWS and user not in visited:
                    visited.add(user)
                    pending.append(user)

    def _views(self, after: Instruction, before: Instruction) -> Iterator[Instruction]:
        """Yield inserted instructions of an opcode, at ``after`` or at what it is a view of."""
        while after in self._inserted:
            if _same_opcode(before, after):
                yield after
                return
            sources = self._flows[1].sources(after)
            if after.opcode not in _VIEWS | {"slice"} or not sources:  # of merged instructions
                return
            after = sources[0]

    def _metadata(self) -> bool:
        """Add successors by metadata alone. Return whether any was added."""
        successors = {after for group in self._found.values() for after in group}
        groups: dict[Hashable, tuple[list[Instruction], list[Instruction]]] = {}
        inserted = [instruction for instruction in self._inserted if instruction not in successors]
        for number, side in enumerate((self._left(), inserted)):
            for instruction in side:
                if instruction.op_name:
                    groups.setdefault(_metadata(instruction), ([], []))[number].append(instruction)
        count = len(self._found)
        for before, after in groups.values():
            if len(before) == len(after):
                self._found.update((a, (b,)) for a, b in zip(before, after, strict=True))
            elif 1 in (len(before), len(after)) and after:
                self._found.update((instruction, tuple(after)) for instruction in before)
        return len(self._found) > count


def _metadata(instruction: Instruction) -> Hashable:
    return _base_opcode(instruction), instruction.op_name, str(instruction.source)


def _same_metadata(first: Instruction, second: Instruction) -> bool:
    return first.op_name is not None and _metadata(first) == _metadata(second)


def _same_opcode(first: Instruction, second: Instruction) -> bool:
    opcode = _base_opcode(first)
    if opcode != _base_opcode(second):
        return False
    return opcode != "convert" or first.shape.element_type == second.shape.element_type
