"""Replays the pass that fuses two fusions with a common operand into one.

Source: xla/service/multi_output_fusion.cc.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count

from fusionscope.graph.cleanup import remove_dead
from fusionscope.graph.fusing import add_output, merge_outputs
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
)
from fusionscope.graph.reachability import Reachability
from fusionscope.passes.context import PassContext
from fusionscope.passes.cpu.multi_output_fusion.rules import (
    MultiOutputFusible,
    MultiOutputLegal,
    MultiOutputProfit,
    MultiOutputWorklist,
    SiblingRule,
    is_profitable,
    shared_bytes,
)
from fusionscope.passes.instruction_fusion import is_embedded
from fusionscope.passes.plan import FusionPlan, PairDecision, decided
from fusionscope.passes.rule import Decision, Rule, RuleBook, first_decision

Siblings = tuple[MutableInstruction, MutableInstruction]


def run(graph: MutableModule, book: RuleBook[Rule], context: PassContext) -> FusionPlan:
    return MultiOutputFusion(graph, book).run()


@dataclass(slots=True)
class MultiOutputFusion:
    """The pass over ``graph``, with the rules of ``book``."""

    graph: MutableModule
    book: RuleBook[Rule]
    _decisions: list[PairDecision] = field(default_factory=list)

    def run(self) -> FusionPlan:
        for computation in self.graph.post_order():
            is_async = any(caller.opcode == "async-start" for caller in computation.callers)
            if not (computation.is_fused or is_async or is_embedded(computation)):
                _Run(self.book, computation, self._decisions).run()
        if any(decision.fusion is not None for decision in self._decisions):
            remove_dead(self.graph)
        return FusionPlan(self.book.pass_name, tuple(self._decisions), self.graph)


class _Run:
    """The pass in one computation."""

    def __init__(
        self,
        book: RuleBook[Rule],
        computation: MutableComputation,
        decisions: list[PairDecision],
    ) -> None:
        self._legal = [rule for rule in book if isinstance(rule, SiblingRule)]
        if book.find(MultiOutputLegal.id) is None:  # this rule always applies
            self._legal.append(MultiOutputLegal())
        worklist = book.find(MultiOutputWorklist.id)
        self._slice = worklist.slice if isinstance(worklist, MultiOutputWorklist) else None
        self._asks_profit = book.find(MultiOutputProfit.id) is not None
        fusible = book.find(MultiOutputFusible.id)
        self._fusible = fusible if isinstance(fusible, MultiOutputFusible) else None
        self._computation = computation
        self._decisions = decisions
        self._order = computation.post_order()
        self._index = {instruction: index for index, instruction in enumerate(self._order)}
        self._reachability = Reachability(self._order)
        self._gone: set[MutableInstruction] = set()
        # The possible partners of each instruction, and the bytes that fusing with them saves.
        self._partners: dict[MutableInstruction, dict[MutableInstruction, int]] = {}
        self._queue: list[tuple[int, int, Siblings]] = []
        self._time = count()

    def run(self) -> None:
        for instruction in self._order:
            self._look_for_partners(instruction)
        while self._queue:
            score, _, (first, second) = heapq.heappop(self._queue)
            if first not in self._gone and second not in self._gone:
                refusal = self._refusal(first, second)
                if refusal is None:
                    self._fuse(first, second, MultiOutputProfit().allow(bytes=-score))
                else:
                    self._decisions.append(decided(first, second, refusal))

    def _is_fusible(self, instruction: MutableInstruction) -> bool:
        return self._fusible is None or self._fusible.is_fusible(instruction)

    def _are_connected(self, first: MutableInstruction, second: MutableInstruction) -> bool:
        reaches = self._reachability.reaches
        return reaches(first, second) or reaches(second, first)

    def _refusal(self, first: MutableInstruction, second: MutableInstruction) -> Decision | None:
        return first_decision(
            rule.check(first, second, self._are_connected) for rule in self._legal
        )

    def _push(self, first: MutableInstruction, second: MutableInstruction, profit: int) -> None:
        heapq.heappush(self._queue, (-profit, -next(self._time), (first, second)))

    def _look_for_partners(self, instruction: MutableInstruction) -> None:
        """Source: CreateFusionWorkListForCurrentComputation."""
        if not self._is_fusible(instruction):
            return
        partners: dict[MutableInstruction, None] = {}
        for operand in instruction.operands:
            if not is_profitable(operand):
                continue
            users = list(operand.users)
            if self._slice is not None:
                start = users.index(instruction) // max(self._slice, 1) * self._slice
                users = users[start : start + self._slice]
            for user in users:
                if (
                    user is not instruction
                    and user not in partners
                    and self._is_fusible(user)
                    and not self._are_connected(instruction, user)
                    and not (
                        self._index[instruction] < self._index[user] and user.opcode == "fusion"
                    )
                ):
                    refusal = self._refusal(instruction, user)
                    if refusal is None:
                        partners[user] = None
                    else:
                        self._decisions.append(decided(instruction, user, refusal))
        for user in partners:
            profit = shared_bytes(instruction, user)
            if profit == 0 and self._asks_profit:
                self._decisions.append(
                    decided(instruction, user, MultiOutputProfit().refuse(bytes=0))
                )
            else:
                self._partners.setdefault(instruction, {})[user] = profit
                self._partners.setdefault(user, {})[instruction] = profit
                self._push(instruction, user, profit)

    def _fuse(
        self, first: MutableInstruction, second: MutableInstruction, decision: Decision
    ) -> None:
        """Source: Perform, GetNewFusibles, UpdateAfterFuse."""
        remaining, absorbed = first, second
        if absorbed.is_multi_output and not remaining.is_multi_output:
            remaining, absorbed = absorbed, remaining
        self._reachability.merge(first, second)
        partners = {
            partner: profit
            for partner, profit in self._partners.get(first, {}).items()
            if partner not in self._gone and not self._are_connected(first, partner)
        }
        self._partners[first] = dict(partners)
        for partner in self._partners.pop(second, {}):
            if (
                partner is not first
                and partner not in partners
                and partner not in self._gone
                and not self._are_connected(first, partner)
            ):
                partners[partner] = 0
        self._decisions.append(decided(first, second, decision, remaining))
        if absorbed.opcode == "fusion":
            merge_outputs(remaining, absorbed)
        else:
            add_output(remaining, absorbed)
        self._gone.add(absorbed)
        for partner, before in partners.items():
            profit = shared_bytes(partner, remaining)
            if profit > before:
                self._push(remaining, partner, profit)
            if before == 0:
                self._partners.setdefault(remaining, {})[partner] = profit
