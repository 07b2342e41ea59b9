"""The order in which the instructions of a module run.

The compiler for CPUs walks each computation breadth first. That for GPUs tries three orders, and
takes the one that needs least memory.

Source: xla/hlo/transforms/simplifiers/hlo_memory_scheduler.cc.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

from fusionscope.graph.live_ranges import LiveRanges, Order, Place, Values
from fusionscope.graph.memory_reuse import Sharing, count_live
from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.graph.properties import is_effective_scalar
from fusionscope.hlo.search import post_order

_Scheduler: TypeAlias = Callable[[MutableComputation, Values], Sequence[MutableInstruction]]
_GIVEN = frozenset({"constant", "parameter"})
_FIRST = float("inf")


def schedule(values: Values, backend: str | None, may_share: Sharing) -> Order:
    """Return the order in which the compiler runs the instructions of each computation."""
    if backend != "gpu":
        return _order(values, _breadth_first)
    orders = [_order(values, heuristic) for heuristic in (_greedy, _depth_first, _post_order)]
    return min(
        orders,
        key=lambda order: max(count_live(LiveRanges(values, order), may_share, as_scheduled=True)),
    )


def _order(values: Values, scheduler: _Scheduler) -> Order:
    return {computation: scheduler(computation, values) for computation in values.computations}


def _post_order(computation: MutableComputation, values: Values) -> Sequence[MutableInstruction]:
    return computation.post_order()


def _breadth_first(computation: MutableComputation, values: Values) -> Sequence[MutableInstruction]:
    """Source: BFScheduler::Run."""
    waiting = _waiting(computation)
    ready = deque(
        sorted(
            (instruction for instruction, count in waiting.items() if not count),
            key=lambda instruction: (
                instruction.parameter_number if instruction.opcode == "parameter" else _FIRST
            ),
        )
    )
    order: list[MutableInstruction] = []
    while ready:
        current = ready.popleft()
        order.append(current)
        for after in (*current.users, *current.successors):
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return order


def _waiting(computation: MutableComputation) -> dict[MutableInstruction, int]:
    """Return for each instruction how many others have to run before it."""
    return {
        instruction: len(set(instruction.operands)) + len(instruction.predecessors)
        for instruction in computation.instructions
    }


def _depth_first(computation: MutableComputation, values: Values) -> Sequence[MutableInstruction]:
    """Visit first the operands that are read most, then those that need most memory.

    Source: DFSMemoryScheduler::Run.
    """
    most = len(computation.instructions)
    extra: dict[MutableInstruction, int] = {}
    sizes: dict[MutableInstruction, int] = {}
    total = 0
    for instruction in computation.post_order():
        extra[instruction] = sizes[instruction] = 0
        if instruction.opcode in _GIVEN:
            continue
        own_bytes = _made_bytes(instruction, values)
        total += own_bytes
        operands = set(instruction.operands)
        readers = max(len(instruction.users) - 1, 0)
        extra[instruction] = min(readers + sum(extra[operand] for operand in operands), most)
        sizes[instruction] = min(own_bytes + sum(sizes[operand] for operand in operands), total)

    def before(instruction: MutableInstruction) -> list[MutableInstruction]:
        earlier = [*instruction.operands, *instruction.predecessors]
        return sorted(earlier, key=lambda value: (-extra[value], -sizes[value], value.name))

    unread = [
        instruction
        for instruction in computation.instructions
        if not instruction.users and not instruction.successors and not instruction.is_root
    ]
    return list(post_order([*unread, computation.root], before))


def _greedy(computation: MutableComputation, values: Values) -> Sequence[MutableInstruction]:
    """Run what frees most bytes, of what can run. Source: ListScheduler."""
    return _Greedy(computation, values).run()


class _Greedy:
    def __init__(self, computation: MutableComputation, values: Values) -> None:
        self.computation = computation
        self.read = {
            instruction: list(
                dict.fromkeys(m for operand in instruction.operands for m in values.all_at(operand))
            )
            for instruction in computation.instructions
        }
        self.made = {
            instruction: _made_bytes(instruction, values)
            for instruction in computation.instructions
        }
        self.unread: Counter[Place] = Counter(
            m for values_read in self.read.values() for m in values_read
        )
        self.unread.update(set(values.all_at(computation.root)))  # the caller reads these
        # Of equal priorities the last one comes first.
        self.ready: list[tuple[tuple[float, float], int, MutableInstruction]] = []
        self.entries: dict[MutableInstruction, tuple[tuple[float, float], int]] = {}
        self.numbers = count(0, -1)

    def run(self) -> Sequence[MutableInstruction]:
        waiting = _waiting(self.computation)
        for instruction, unread in waiting.items():
            if not unread:
                self._add(instruction)
        order: list[MutableInstruction] = []
        while self.ready:
            priority, number, best = heappop(self.ready)
            if self.entries.get(best) != (priority, number):
                continue  # it has another priority by now
            del self.entries[best]
            order.append(best)
            for value in self.read[best]:
                self.unread[value] -= 1
            for after in (*best.users, *best.successors):
                waiting[after] -= 1
                if not waiting[after]:
                    self._add(after)
            if any(self.unread[value] == 1 for value in self.read[best]):
                for operand in best.operands:
                    for user in operand.users:
                        if user in self.entries and self.entries[user][0] != self._priority(user):
                            self._add(user)
        return order

    def _add(self, instruction: MutableInstruction) -> None:
        entry = self._priority(instruction), next(self.numbers)
        self.entries[instruction] = entry
        heappush(self.ready, (*entry, instruction))

    def _priority(self, instruction: MutableInstruction) -> tuple[float, float]:
        """Return the bytes that it frees and the number of its users, negated."""
        if is_effective_scalar(instruction.shape):
            return -_FIRST, -_FIRST
        freed = sum(
            value.size
            for value in self.read[instruction]
            if self.unread[value] == 1 and value.maker.opcode not in _GIVEN
        )
        return self.made[instruction] - freed, -len(instruction.users)


def _made_bytes(instruction: MutableInstruction, values: Values) -> int:
    """Return the bytes of what an instruction makes; parameters and constants count nothing."""
    if instruction.opcode in _GIVEN:
        return 0
    return sum(value.size for value in values.all_at(instruction) if value.maker is instruction)
