"""Replays instruction fusion, which fuses producers into consumers one after the other.

Source: xla/service/instruction_fusion.cc.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from fusionscope.graph.fusing import create_fusion, fuse_instruction
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
)
from fusionscope.graph.properties import EMBEDDING, is_fusible
from fusionscope.graph.reachability import Reachability
from fusionscope.passes.context import Deadline
from fusionscope.passes.inplace import InPlaceRule, check_in_place
from fusionscope.passes.pair_rules import Eligible, GloballyUnfusible, PairRule
from fusionscope.passes.plan import FusionPlan, PairDecision
from fusionscope.passes.rule import NO_OBJECTION, Decision, Rule, RuleBook
from fusionscope.passes.state import FusionPair, FusionState, UnfusibleBy

# A check of a pair, and the state that it reads.
Question = tuple[Callable[[FusionPair, Any], Decision | None], Any]


class Judge:
    """Asks the rules of a book, in their order. ``question`` returns how a rule is asked, None if
    it is not asked about pairs.

    ``lasting`` are the rules whose refusals last while a fusion grows: those of all rules before
    them do, too.
    """

    def __init__(self, book: RuleBook[Rule], question: Callable[[Rule], Question | None]) -> None:
        first = takewhile(lambda rule: isinstance(rule, PairRule) and rule.lasts, book)
        self.lasting = frozenset(rule.id for rule in first)
        self._first: list[Question] = []
        self._steps: list[Question] = []
        # Rules that a user's override does not skip.
        self._legal: list[Question] = []
        in_place = tuple(rule for rule in book if isinstance(rule, InPlaceRule))
        is_first = {rule: isinstance(rule, PairRule) and rule.is_asked_first for rule in book}
        for rule in sorted(book, key=lambda rule: not is_first[rule]):
            step = question(rule)
            if isinstance(rule, InPlaceRule) and rule is in_place[0]:
                step = _check_in_place, in_place
            if step is not None:
                (self._first if is_first[rule] else self._steps).append(step)
                if rule.is_legality or rule.only_allows:
                    self._legal.append(step)

    def decide(self, pair: FusionPair) -> Decision:
        """Return the first decision of a rule."""
        decision = self._ask(self._first, pair)
        if decision is None:
            return self.should_fuse(pair)
        if decision.allow:  # only an override allows this early
            legal = self._ask(self._legal, pair)
            return legal if legal is not None and not legal.allow else decision
        return decision

    def should_fuse(self, pair: FusionPair) -> Decision:
        """Return the decision of the rules that do not inspect the whole computation."""
        return self._ask(self._steps, pair) or NO_OBJECTION

    def _ask(self, steps: list[Question], pair: FusionPair) -> Decision | None:
        # Not ``first_decision``: a generator for every pair takes as long as the rules.
        for check, state in steps:
            decision = check(pair, state)
            if decision is not None:
                return decision
        return None


def _check_in_place(pair: FusionPair, rules: tuple[InPlaceRule, ...]) -> Decision | None:
    return check_in_place(rules, pair)


def is_embedded(computation: MutableComputation) -> bool:
    """Return whether its values are never materialized. Source: IsEmbeddedComputation."""
    first = next(iter(computation.callers), None)
    return first is not None and first.opcode in EMBEDDING


def find_globally_unfusible(
    order: Sequence[MutableInstruction],
    reachability: Reachability,
    rule: GloballyUnfusible,
    judge: Judge,
) -> dict[MutableInstruction, UnfusibleBy]:
    """Return the producers that must not be duplicated. Source: ComputeGloballyUnfusible."""
    paths = _Paths(reachability, judge)
    for producer in reversed(order):
        if rule.keeps_candidate(producer):
            obstacle = f"{producer.opcode} {producer.name} cannot be fused"
            if is_fusible(producer):
                obstacles = (paths.obstacle(producer, user) for user in producer.users)
                obstacle = next(filter(None, obstacles), "")
            if obstacle:
                paths.kept[producer] = UnfusibleBy(rule.id, obstacle)
    return paths.kept


class _Paths:
    """The obstacles to fusing a producer into a consumer on all paths between them."""

    def __init__(self, reachability: Reachability, judge: Judge) -> None:
        self.kept: dict[MutableInstruction, UnfusibleBy] = {}
        self._reachability = reachability
        self._judge = judge
        self._known: dict[tuple[MutableInstruction, MutableInstruction], str] = {}
        self._refusals: dict[tuple[MutableInstruction, int], str] = {}

    def obstacle(self, producer: MutableInstruction, consumer: MutableInstruction) -> str:
        """Return the first pair that cannot be fused and its rule, in words; empty if there is
        none.

        Source: CanFuseOnAllPaths.
        """
        # One entry for each consumer on the path, with its next slot.
        path: list[tuple[MutableInstruction, int]] = [(consumer, 0)]
        while path:
            current, slot = path.pop()
            answer = self._answer(producer, current) if slot == 0 else None
            while answer is None:
                if slot == len(current.operands):
                    answer = ""
                    break
                operand = current.operands[slot]
                if self._reachability.reaches(producer, operand):
                    answer = self._refusal(current, slot) or None
                    if answer is None:
                        answer = self._answer(producer, operand)
                        if answer is None:
                            path += [(current, slot), (operand, 0)]
                            break
                        answer = answer or None
                    if answer is not None:
                        break
                slot += 1
            if answer is not None:
                self._known[producer, current] = answer
        return self._known[producer, consumer]

    def _answer(self, producer: MutableInstruction, consumer: MutableInstruction) -> str | None:
        """Return the obstacle, if it is known."""
        if consumer is producer:
            return ""
        if not is_fusible(consumer):
            return f"{consumer.opcode} {consumer.name} cannot be fused"
        return self._known.get((producer, consumer))

    def _refusal(self, consumer: MutableInstruction, slot: int) -> str:
        operand = consumer.operands[slot]
        if operand in self.kept:
            return f"{operand.name} -> {consumer.name}, {self.kept[operand].rule}"
        refusal = self._refusals.get((consumer, slot))
        if refusal is None:
            decision = self._judge.should_fuse(FusionPair(operand, consumer, slot))
            refusal = (
                "" if decision.allow else f"{operand.name} -> {consumer.name}, {decision.rule}"
            )
            self._refusals[consumer, slot] = refusal
        return refusal


class _Queue:
    """Instructions from the last to the first, with new fusions inserted where they were formed.

    Source: ReversePostOrderFusionQueue.
    """

    def __init__(self, order: Sequence[MutableInstruction]) -> None:
        self._waiting: list[MutableInstruction | None] = list(order)
        self._index = {instruction: index for index, instruction in enumerate(order)}
        # The last fusion formed: the number of its operands, and the waiting ones, in order. It
        # comes up again with each producer, so its operands are not sorted again each time.
        self._fusion: MutableInstruction | None = None
        self._count = 0
        self._operands: list[tuple[int, MutableInstruction]] = []

    def next(self) -> tuple[MutableInstruction, Iterator[MutableInstruction]] | None:
        """Return an instruction and its operands in the order of trial, repeated ones twice."""
        while self._waiting and self._waiting[-1] is None:
            self._waiting.pop()
        if not self._waiting:
            return None
        instruction = self._waiting.pop()
        assert instruction is not None
        del self._index[instruction]
        if instruction is self._fusion:
            return instruction, (operand for _, operand in reversed(self._operands))
        waiting = [operand for operand in instruction.operands if operand in self._index]
        return instruction, iter(sorted(waiting, key=self._index.__getitem__, reverse=True))

    def add(self, fusion: MutableInstruction, producer: MutableInstruction) -> None:
        """Record that ``producer`` went into ``fusion``, which now reads its operands last."""
        if fusion is self._fusion:
            place = bisect_left(self._operands, self._index[producer], key=_index_of)
            del self._operands[place]
            self._order(fusion.operands[self._count - 1 :])
        else:
            self._fusion, self._operands = fusion, []
            self._order(fusion.operands)
        self._count = len(fusion.operands)
        self._index[fusion] = len(self._waiting)
        self._waiting.append(fusion)

    def _order(self, operands: Sequence[MutableInstruction]) -> None:
        for operand in operands:
            if operand in self._index:
                insort(self._operands, (self._index[operand], operand), key=_index_of)

    def remove(self, instruction: MutableInstruction) -> None:
        self._waiting[self._index.pop(instruction)] = None


def _index_of(operand: tuple[int, MutableInstruction]) -> int:
    return operand[0]


@dataclass(slots=True)
class InstructionFusion:
    """The pass over ``graph`` by the rules of ``book``, until the ``deadline``: ``OutOfTime``."""

    graph: MutableModule
    book: RuleBook[Rule]
    state: FusionState
    deadline: Deadline | None

    def run(self) -> FusionPlan:
        decisions: list[PairDecision] = []
        for computation in self.computations():
            decisions += self._run_in(computation)
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph)

    def computations(self) -> list[MutableComputation]:
        """Return the computations in which it fuses."""
        order = self.graph.post_order()
        return [
            computation
            for computation in order
            if not computation.is_fused and (self.visits_embedded or not is_embedded(computation))
        ]

    @property
    def visits_embedded(self) -> bool:
        """Return whether it fuses in reducers, comparators and the like."""
        return False

    def question(self, rule: Rule) -> Question | None:
        """Return how ``rule`` is asked about a pair, None if it is not."""
        return (rule.check, self.state) if isinstance(rule, PairRule) else None

    def _run_in(self, computation: MutableComputation) -> list[PairDecision]:
        judge = Judge(self.book, self.question)
        order = computation.post_order()
        self.state.globally_unfusible = self.find_globally_unfusible(order, judge)
        queue = _Queue(order)
        considered: list[PairDecision] = []
        # A fusion comes up again with each producer that goes into it: the refusals that last.
        refused: dict[MutableInstruction, PairDecision] = {}
        latest: MutableInstruction | None = None
        while (entry := queue.next()) is not None:
            if self.deadline is not None:
                self.deadline.check()
            consumer, producers = entry
            if consumer is not latest:
                latest, refused = consumer, {}
            producer, slot = consumer, -1
            for candidate in producers:
                if candidate in refused:
                    considered.append(refused[candidate])
                    continue
                slot = consumer.operands.index(candidate, slot + 1 if candidate is producer else 0)
                producer = candidate
                pair = FusionPair(producer, consumer, slot)
                decision = judge.decide(pair)
                if decision.allow and producer.opcode == "parameter":
                    decision = Eligible().refuse(unfusible="parameter")
                is_recorded = decision.rule != Eligible.id and "get-tuple-element" not in (
                    producer.opcode,
                    consumer.opcode,
                )
                fusion = self.fuse(pair) if decision.allow else None
                names = computation.name, producer.name, consumer.name
                fusion_name = fusion.name if fusion else None
                decision_of_pair = PairDecision(*names, decision, fusion_name, is_recorded)
                considered.append(decision_of_pair)
                if fusion is None:
                    # Of a random number generator the users count, which change.
                    if decision.rule in judge.lasting and producer.opcode != "rng":
                        refused[producer] = decision_of_pair
                    continue
                queue.add(fusion, producer)
                if not producer.users:
                    queue.remove(producer)
                    computation.remove(producer)
                break
        return considered

    def find_globally_unfusible(
        self, order: Sequence[MutableInstruction], judge: Judge
    ) -> dict[MutableInstruction, UnfusibleBy]:
        rule = self.book.find(GloballyUnfusible.id)
        if not isinstance(rule, GloballyUnfusible) or not self.state.may_duplicate:
            return {}
        return find_globally_unfusible(order, Reachability(order), rule, judge)

    def choose_kind(self, pair: FusionPair) -> str:
        return "kLoop"

    def fuse(self, pair: FusionPair) -> MutableInstruction:
        """Source: Fuse, AddFusionInstruction."""
        producer, consumer = pair.producer, pair.consumer
        kind = self.choose_kind(pair)
        if consumer.opcode == "fusion":
            fusion = consumer
            fusion.fusion_kind = kind
        else:
            name = f"{producer.opcode}_{consumer.opcode}_fusion"
            fusion = create_fusion(consumer, kind, name)
            consumer.computation.replace(consumer, fusion)
        self.state.before_fusing(fusion, producer)
        evaluation = self.state.evaluation(fusion)
        evaluation.fused(producer, fuse_instruction(fusion, producer))
        return fusion
