"""Replays the pass that merges a fusion into all of its users.

Source: xla/service/gpu/transforms/fusion_merger.cc of October 2024.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from fusionscope.gpu.kinds import choose_kind
from fusionscope.gpu.state import GpuState
from fusionscope.graph.fusing import create_fusion, merge_fusion
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.passes.context import PassContext
from fusionscope.passes.gpu.priority_fusion.rules import GpuPairRule
from fusionscope.passes.gpu_legacy.fusion_merger.rules import AllMerge, MergeRule
from fusionscope.passes.inplace import InPlaceRule, check_in_place
from fusionscope.passes.plan import FusionPlan, PairDecision, decided
from fusionscope.passes.rule import NO_OBJECTION, Decision, Rule, RuleBook
from fusionscope.passes.state import FusionPair


def run(graph: MutableModule, book: RuleBook[Rule], context: PassContext) -> FusionPlan:
    return FusionMerger(graph, book, context.gpu_state()).run()


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A refusal. ``user`` is the user that a rule is about, or None if it is about all of them."""

    user: MutableInstruction | None
    decision: Decision

    def of(self, user: MutableInstruction) -> Decision:
        if self.user in (None, user):
            return self.decision
        assert self.user is not None
        return AllMerge().refuse_because(self.user.result_name, self.decision)


@dataclass(slots=True)
class FusionMerger:
    """The pass over ``graph``, with the rules of ``book``.

    For a fusion that stays, the compiler records one refusal, whichever user it is about, and names
    the first user.
    """

    graph: MutableModule
    book: RuleBook[Rule]
    state: GpuState

    def run(self) -> FusionPlan:
        decisions: list[PairDecision] = []
        for computation in self.graph.post_order():
            if not computation.is_fused:
                decisions += self._run_in(computation)
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph)

    def _run_in(self, computation: MutableComputation) -> Iterator[PairDecision]:
        for producer in computation.post_order():
            if producer.opcode != "fusion":
                continue
            users = list(producer.users)
            refusal = self._refusal(producer)
            if refusal is not None:
                for user in users or [producer]:
                    is_recorded = bool(users) and user is users[0]
                    yield decided(producer, user, refusal.of(user), is_recorded=is_recorded)
                continue
            for user in users:
                decision = decided(producer, user, NO_OBJECTION, is_recorded=True)
                yield decision._replace(fusion=self._merge(producer, user).name)
            self._forget(producer)
            computation.remove(producer)

    def _refusal(self, producer: MutableInstruction) -> _Refusal | None:
        """Return the first refusal. Rules about one user are asked in groups: all for one user,
        then for the next.
        """
        for _, group in groupby(self.book, lambda rule: isinstance(rule, MergeRule)):
            rules = list(group)
            for user, decision in self._decisions(producer, rules):
                if decision is not None:
                    return _Refusal(user, decision)
        return None

    def _decisions(
        self, producer: MutableInstruction, rules: Iterable[Rule]
    ) -> Iterator[tuple[MutableInstruction | None, Decision | None]]:
        """Yield the decision of each rule and, for a rule about one user, that user."""
        for rule in rules:
            if isinstance(rule, MergeRule):
                yield None, rule.check(producer, self.state)
        yield from self._of_users(producer, rules)

    def _of_users(
        self, producer: MutableInstruction, rules: Iterable[Rule]
    ) -> Iterator[tuple[MutableInstruction | None, Decision | None]]:
        for user in producer.users:
            pair = FusionPair(producer, user, user.operands.index(producer))
            for is_in_place, group in groupby(rules, lambda rule: isinstance(rule, InPlaceRule)):
                if is_in_place:
                    in_place = tuple(rule for rule in group if isinstance(rule, InPlaceRule))
                    yield user, check_in_place(in_place, pair)
                else:
                    for rule in group:
                        if isinstance(rule, GpuPairRule):
                            yield user, rule.check(pair, self.state)

    def _merge(self, producer: MutableInstruction, user: MutableInstruction) -> MutableInstruction:
        fusion = user
        if user.opcode != "fusion":
            kind = choose_kind(producer, user, self.state.device, self.state.emitters)
            fusion = create_fusion(user, kind)
            user.computation.replace(user, fusion)
        merge_fusion(fusion, producer)
        self._forget(user)
        self._forget(fusion)
        return fusion

    def _forget(self, instruction: MutableInstruction) -> None:
        self.state.model.invalidate(instruction)
        self.state.changed(instruction)
