"""Replays the GPU pass that forms kernels with several outputs.

Source: xla/backends/gpu/transforms/multi_output_fusion.cc.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from fusionscope.gpu.kinds import choose_kind
from fusionscope.gpu.state import GpuState
from fusionscope.graph.fusing import add_output, create_fusion, merge_outputs
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.graph.reachability import Reachability
from fusionscope.grouping import Numbers
from fusionscope.passes.context import PassContext
from fusionscope.passes.gpu.multi_output_fusion.rules import (
    Connected,
    MultiOutputState,
    OutputChoice,
    OutputCycle,
    OutputPair,
    OutputPairRule,
    OutputProducer,
    Place,
    PlaceRule,
    Relation,
    SiblingCandidate,
    SiblingOrder,
)
from fusionscope.passes.gpu.priority_fusion.computation import fusible_computations
from fusionscope.passes.gpu.priority_fusion.rules import GpuPairRule
from fusionscope.passes.overrides import Forbidden
from fusionscope.passes.plan import FusionPlan, PairDecision, decided
from fusionscope.passes.rule import NO_OBJECTION, Decision, Rule, RuleBook, first_decision

# What rules that tell kinds of siblings said, by their place among all rules and by the kind.
_Known = dict[tuple[int, int], Decision | None]

# These rules always apply.
_NEEDED = (SiblingCandidate(), OutputProducer(), Connected(), OutputCycle())


def run(graph: MutableModule, book: RuleBook[Rule], context: PassContext) -> FusionPlan:
    return GpuMultiOutputFusion(graph, book, context.gpu_state()).run()


@dataclass(slots=True)
class GpuMultiOutputFusion:
    """The pass over ``graph``, with the rules of ``book``.

    ``state`` must be new: the pass starts without any times of kernels. Refused siblings are
    reported in the compiler's order: first the one that would absorb the other, and second if it
    did.
    """

    graph: MutableModule
    book: RuleBook[Rule]
    state: GpuState

    def run(self) -> FusionPlan:
        decisions: list[PairDecision] = []
        judge = _Judge(self.book)
        for computation in fusible_computations(self.graph):
            run = _Run(judge, self.state, computation)
            run.run()
            decisions += run.decisions
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph)


class _Judge:
    """Asks the rules of a book."""

    def __init__(self, book: RuleBook[Rule]) -> None:
        rules = [*book, *(rule for rule in _NEEDED if book.find(rule.id) is None)]
        self._by_place = {
            place: [rule for rule in rules if isinstance(rule, PlaceRule) and place in rule.places]
            for place in Place
        }
        self._by_relation = {
            relation: [
                rule
                for rule in rules
                if isinstance(rule, GpuPairRule)
                or (isinstance(rule, OutputPairRule) and relation in rule.relations)
            ]
            for relation in Relation
        }
        self._of_siblings = [
            (tells_kinds, list(rules))
            for tells_kinds, rules in groupby(self._by_relation[Relation.SIBLINGS], _tells_kinds)
        ]
        self._forbidden = [rule for rule in book if isinstance(rule, Forbidden)]
        self._order = next((rule for rule in book if isinstance(rule, SiblingOrder)), None)
        self._choice = next((rule for rule in book if isinstance(rule, OutputChoice)), None)

    def refuses(
        self, place: Place, instruction: MutableInstruction, state: MultiOutputState
    ) -> Decision | None:
        return first_decision(rule.check(instruction, state) for rule in self._by_place[place])

    def refuses_pair(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        forbidden = first_decision(rule.check(pair) for rule in self._forbidden)
        return forbidden or _ask(self._by_relation[pair.relation], pair, state)

    def refuses_sibling(
        self, pair: OutputPair, state: MultiOutputState, kind: int, answers: _Known
    ) -> Decision | None:
        """As ``refuses_pair``. A full kernel refuses all others, so that rules which tell kinds of
        siblings are asked once about each: ``answers`` is what they said since the kernel changed.
        """
        for place, (tells_kinds, rules) in enumerate(self._of_siblings):
            if not tells_kinds:
                refusal = _ask(rules, pair, state)
            elif (place, kind) in answers:
                refusal = answers[place, kind]
            else:
                refusal = answers[place, kind] = _ask(rules, pair, state)
            if refusal is not None:
                return refusal
        return None

    def find_kinds(
        self,
        siblings: Iterable[MutableInstruction],
        parent: MutableInstruction,
        state: MultiOutputState,
    ) -> dict[MutableInstruction, int]:
        """A number for each, equal where rules that tell kinds of siblings see the same."""
        numbers = Numbers()
        kinds: dict[MutableInstruction, int] = {}
        for sibling in siblings:
            visited = tuple(
                rule.looks_at(sibling, parent, state)
                if isinstance(rule, OutputPairRule)
                else rule.looks_at(sibling, state.gpu)
                for tells_kinds, rules in self._of_siblings
                if tells_kinds
                for rule in rules
            )
            kinds[sibling] = numbers[visited]
        return kinds

    def arrange(self, siblings: list[MutableInstruction]) -> list[MutableInstruction]:
        return self._order.arrange(siblings) if self._order is not None else siblings

    def choose(self, consumers: Sequence[MutableInstruction]) -> MutableInstruction:
        return self._choice.choose(consumers) if self._choice is not None else consumers[0]


class _Run:
    """The pass in one computation."""

    def __init__(self, judge: _Judge, gpu: GpuState, computation: MutableComputation) -> None:
        self.decisions: list[PairDecision] = []
        self._judge = judge
        self._computation = computation
        self._state = MultiOutputState(gpu, self._reaches)
        self._order = computation.post_order()
        self._reachability = Reachability(self._order)
        # The replacements of the instructions that were there at the beginning.
        self._stands_for = {instruction: instruction for instruction in self._order}

    def run(self) -> None:
        for producer in reversed(self._order):
            if producer.users and producer.opcode != "constant" and not producer.is_custom_fusion:
                self._fuse_siblings(producer)
                self._fuse_into_consumer(producer)

    def _reaches(self, start: MutableInstruction, end: MutableInstruction) -> bool:
        while end not in self._stands_for:  # an element of a fusion
            end = end.operands[0]
        return self._reachability.reaches(self._stands_for[start], self._stands_for[end])

    def _fuse_siblings(self, parent: MutableInstruction) -> None:
        """Source: FuseSiblings."""
        if self._judge.refuses(Place.PARENT, parent, self._state) is not None:
            return
        siblings = self._judge.arrange(
            [
                user
                for user in parent.users
                if self._judge.refuses(Place.SIBLING, user, self._state) is None
            ]
        )
        kinds = self._judge.find_kinds(siblings, parent, self._state)
        while siblings:
            taker, *remaining = siblings
            if taker.opcode == "fusion":
                remaining = self._take_in(taker, remaining, parent, kinds)
            siblings = remaining

    def _take_in(
        self,
        taker: MutableInstruction,
        siblings: Iterable[MutableInstruction],
        parent: MutableInstruction,
        kinds: Mapping[MutableInstruction, int],
    ) -> list[MutableInstruction]:
        """Those that ``taker`` refused."""
        refused: list[MutableInstruction] = []
        answers: _Known = {}
        slot = taker.operands.index(parent)
        for sibling in siblings:
            pair = OutputPair(sibling, taker, slot, parent)
            refusal = self._judge.refuses_sibling(pair, self._state, kinds[sibling], answers)
            if refusal is not None:
                self.decisions.append(decided(taker, sibling, refusal, is_recorded=True))
                refused.append(sibling)
                continue
            self.decisions.append(decided(sibling, taker, NO_OBJECTION, taker, is_recorded=True))
            is_input = sibling.fusion_kind == "kInput"
            self._fuse(sibling, taker, taker)
            if is_input:
                _set_kind(taker, "kInput")
            answers = {}
            slot = taker.operands.index(parent)
        return refused

    def _fuse_into_consumer(self, producer: MutableInstruction) -> None:
        """Source: DoMultiOutputFusion, GetProducerConsumerMultiOutputFusionCandidates."""
        silent = self._judge.refuses(Place.PRODUCER, producer, self._state)
        consumers: list[MutableInstruction] = []
        for consumer in producer.users:
            if silent is not None:
                self.decisions.append(decided(producer, consumer, silent))
                continue
            refusal = self._judge.refuses(Place.CONSUMER, consumer, self._state)
            if refusal is None:
                slot = consumer.operands.index(producer)
                pair = OutputPair(producer, consumer, slot, None)
                refusal = self._judge.refuses_pair(pair, self._state)
            if refusal is None:
                consumers.append(consumer)
            else:
                self.decisions.append(decided(producer, consumer, refusal, is_recorded=True))
        if not consumers:
            return
        consumer = self._judge.choose(consumers)
        for refused_consumer in consumers:
            if refused_consumer is not consumer:
                refusal = OutputChoice().refuse(chosen=consumer.name)
                self.decisions.append(decided(producer, refused_consumer, refusal))
        fusion = consumer
        if consumer.opcode != "fusion":
            gpu = self._state.gpu
            kind = choose_kind(producer, consumer, gpu.device, gpu.emitters)
            fusion = create_fusion(consumer, kind)
        self.decisions.append(decided(producer, consumer, NO_OBJECTION, fusion, is_recorded=True))
        self._fuse(producer, consumer, fusion)

    def _fuse(
        self,
        producer: MutableInstruction,
        consumer: MutableInstruction,
        fusion: MutableInstruction,
    ) -> None:
        """Make ``producer`` an output of ``fusion``, which replaces ``consumer``."""
        ends = (producer, consumer)
        for end in ends:
            self._state.gpu.model.invalidate(end)
        self._stands_for[fusion] = self._stands_for[consumer]
        self._reachability.merge(self._stands_for[producer], self._stands_for[consumer])
        if fusion is not consumer:
            self._computation.replace(consumer, fusion)
        if producer.opcode == "fusion":
            merge_outputs(fusion, producer)
        else:
            add_output(fusion, producer)
            self._computation.remove(producer)
        for end in ends:
            self._state.changed(end)


def _tells_kinds(rule: GpuPairRule | OutputPairRule) -> bool:
    """Whether it looks at less than a sibling itself."""
    if isinstance(rule, OutputPairRule):
        return type(rule).looks_at is not OutputPairRule.looks_at
    return type(rule).looks_at is not GpuPairRule.looks_at


def _ask(
    rules: Iterable[GpuPairRule | OutputPairRule], pair: OutputPair, state: MultiOutputState
) -> Decision | None:
    return first_decision(
        rule.check(pair, state) if isinstance(rule, OutputPairRule) else rule.check(pair, state.gpu)
        for rule in rules
    )


def _set_kind(fusion: MutableInstruction, kind: str) -> None:
    fusion.attributes_text = fusion.attributes_text.replace(
        f"kind={fusion.fusion_kind}", f"kind={kind}", 1
    )
    fusion.fusion_kind = kind
