"""Replays priority fusion by the compiler's record of it.

The record has each fusion in its order, and the scores and refusals between two of them. What it
lacks is computed at the end, for the producers that were not fused: the reason of each consumer and
what it costs. So a step that this replay cannot follow, or that the rules contradict, concerns one
producer and is counted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority, PriorityStep
from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.cost.duration import INFINITE, TICKS_PER_MICROSECOND
from fusionscope.gpu.cost.numbers import f32
from fusionscope.gpu.emitters import TRITON, is_generic_triton
from fusionscope.gpu.state import GpuState, is_fusible_bitcast
from fusionscope.gpu.tiling.kernel import Tiling
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    reorder_users,
)
from fusionscope.passes.context import PassContext
from fusionscope.passes.gpu.priority_fusion.computation import (
    Ages,
    ComputationRun,
    fusible_computations,
)
from fusionscope.passes.gpu.priority_fusion.recorded_order import FollowedRecord, FormedFusion
from fusionscope.passes.gpu.priority_fusion.rules import NegativeBenefit
from fusionscope.passes.gpu.triton_fusion import set_config, set_triton_config
from fusionscope.passes.plan import Followed, FusionPlan, PairDecision
from fusionscope.passes.rule import NO_OBJECTION, Rule, RuleBook
from fusionscope.progress import about

# Below, 32-bit floats of microseconds are 2**-13 us apart, which is less than a tick.
_MOST_EXACT = 2**11 * TICKS_PER_MICROSECOND


def follow_record(
    graph: MutableModule, book: RuleBook[Rule], record: FollowedRecord, context: PassContext
) -> FusionPlan:
    """Return the plan that the record leads to, with how many of its steps differ."""
    target, state = context.target, context.gpu_state()
    progress = about(book.pass_name, context.progress)
    computations = fusible_computations(graph)
    steps = _by_computation(computations, record.steps)
    decisions: list[PairDecision] = []
    differing = len(record.steps) - sum(map(len, steps.values()))
    for computation in computations:
        progress(f"following {len(steps[computation]):,} recorded steps")
        for instruction in computation.instructions:
            if instruction.name in target.users:
                reorder_users(instruction, target.users[instruction.name])
        state.triton.forget_pairs()
        ages = Ages(computation, target.ids.get(computation.name, {}))
        run = _RecordedRun(computation, book, state, ages, record.fusions)
        run.run(steps[computation])
        decisions += run.decisions
        differing += run.differing
    followed = Followed(len(record.steps), differing)
    return FusionPlan(book.pass_name, tuple(decisions), graph, followed=followed)


def _by_computation(
    computations: Sequence[MutableComputation], steps: Sequence[PriorityStep]
) -> dict[MutableComputation, list[PriorityStep]]:
    """Return the steps about instructions of each computation, without those about others."""
    places = {
        instruction.name: computation
        for computation in computations
        for instruction in computation.instructions
    }
    steps_of: dict[MutableComputation, list[PriorityStep]] = defaultdict(list)
    for step in steps:
        computation = places.get(step.producer)
        if computation is not None:
            steps_of[computation].append(step)
            if isinstance(step, Fused):
                places[step.fusion] = computation
    return steps_of


class _Grown(NamedTuple):
    """One fusion: ``consumer`` became ``fusion``, which is the same if it was one before."""

    producer: MutableInstruction
    consumer: MutableInstruction
    fusion: MutableInstruction


class _RecordedRun(ComputationRun):
    """The pass in one computation, as a record has it. ``fusions`` are those that remain after the
    pass. ``differing`` counts the steps that differ.
    """

    def __init__(
        self,
        computation: MutableComputation,
        book: RuleBook[Rule],
        state: GpuState,
        ages: Ages,
        fusions: Mapping[str, FormedFusion],
    ) -> None:
        super().__init__(computation, book, state, ages)
        self.differing = 0
        self._named = {instruction.name: instruction for instruction in computation.instructions}
        self._fusions = fusions
        self._formed: dict[MutableInstruction, FormedFusion | None] = {}
        self._has_triton = any(map(is_generic_triton, computation.instructions)) or any(
            fusion.config for fusion in fusions.values()
        )
        negative = book.find(NegativeBenefit.id)
        self._negative = negative if isinstance(negative, NegativeBenefit) else NegativeBenefit()
        # The reasons of producers that were refused, and those whose score shows no ticks.
        self._reasons: dict[MutableInstruction, str] = {}
        self._rounded: set[MutableInstruction] = set()
        # Producers that wait to be fused, those that have a score since they last changed, and
        # those whose next score is a difference to it.
        self._waiting: set[MutableInstruction] = set()
        self._scored: set[MutableInstruction] = set()
        self._updated: set[MutableInstruction] = set()
        self._grown: list[_Grown] = []  # since the last score
        self._asked: dict[MutableInstruction, None] = {}  # in the order of their last steps

    def run(self, steps: Sequence[PriorityStep]) -> None:
        for step, following in zip_longest(steps, steps[1:]):
            if isinstance(step, Fused):
                is_last = not isinstance(following, Fused) or following.producer != step.producer
                self._follow_fusion(step, is_last=is_last)
            else:
                self._follow_score(step)
        self._complete()
        self._tile()
        self._tell_refusals()
        self._fuse_constants()

    def _follow_fusion(self, step: Fused, *, is_last: bool) -> None:
        producer, consumer = self._named.get(step.producer), self._named.get(step.consumer)
        if producer is None or consumer is None or producer not in consumer.operands:
            self.differing += 1
            if consumer is not None:  # later steps are about what it was to become
                self._named[step.fusion] = consumer
            return
        if self._grown and self._grown[-1].producer is not producer:
            self._settle()
        before = consumer.name
        fusion = self._form(producer, consumer, step.fusion, is_last=is_last)
        self._named[step.fusion] = fusion
        self._grown.append(_Grown(producer, consumer, fusion))
        self.decisions.append(
            PairDecision(
                computation=self._computation.name,
                producer=producer.name,
                consumer=before,
                decision=NO_OBJECTION,
                fusion=fusion.name,
                is_recorded=True,
            )
        )
        if not producer.users:
            if producer.parent is not None:
                self._computation.remove(producer)
            if producer.opcode == "fusion":  # its clones are in the consumers
                producer.fused.dissolve()

    def _form(
        self,
        producer: MutableInstruction,
        consumer: MutableInstruction,
        name: str,
        *,
        is_last: bool,
    ) -> MutableInstruction:
        triton = self._state.triton
        # Otherwise, a producer goes into all of its consumers that are not bitcasts.
        writes_producer = (
            self._state.gpu_model.has_triton_outputs
            and is_last
            and not is_fusible_bitcast(producer)
            and any(
                user is not consumer and not is_fusible_bitcast(user) for user in producer.users
            )
        )
        identity = (
            triton.identity(producer, consumer, writes_producer=writes_producer)
            if self._has_triton
            else None
        )
        is_triton = is_generic_triton(producer) or is_generic_triton(consumer)
        formed = self._fusions.get(name)  # None if it goes into others later
        kind = "kCustom" if is_triton else "kLoop"
        kind = kind if formed is None else formed.kind
        fusion = self._fuse(producer, consumer, kind, writes_producer=writes_producer)
        if fusion not in self._formed and formed is not None and formed.config:
            set_config(fusion, formed.config)
        if is_triton:
            fusion.backend_kind = TRITON
        if identity is not None:
            triton.fused(fusion, identity, None)
        self._formed[fusion] = formed
        return fusion

    def _settle(self) -> None:
        """Note whose next scores are new, and whose are differences: those of other operands of a
        fusion that wait. Source: ComputeRuntimesOfRemovedConsumers, InvalidateCaches.
        """
        self._updated = {
            operand
            for producer, _, fusion in self._grown
            for operand in fusion.operands
            if operand is not producer and operand in self._waiting and operand in self._scored
        }
        for producer, consumer, fusion in self._grown:
            self._scored.discard(consumer)
            self._waiting.discard(producer)
            if fusion is not consumer:
                self._waiting.discard(consumer)
        self._grown.clear()

    def _follow_score(self, step: Ineligible | Priority) -> None:
        if self._grown:
            self._settle()
        producer = self._named.get(step.producer)
        if producer is None:
            self.differing += 1
            return
        self._asked.pop(producer, None)
        self._asked[producer] = None
        if isinstance(step, Ineligible):
            self._scores[producer] = None
            self._reasons[producer] = step.reason
            self._waiting.discard(producer)
        else:
            self._set_score(producer, step)

    def _set_score(self, producer: MutableInstruction, step: Priority) -> None:
        times = [f32(time) * TICKS_PER_MICROSECOND for time in (step.unfused_us, step.fused_us)]
        if not all(abs(time) < _MOST_EXACT for time in times):  # true for NaN
            self._rounded.add(producer)
        unfused, fused = (round(time) if math.isfinite(time) else INFINITE for time in times)
        benefit = INFINITE if unfused == INFINITE else unfused - fused
        earlier = self._scores.get(producer) if producer in self._updated else None
        score = self._scores[producer] = benefit if earlier is None else earlier + benefit
        self._scored.add(producer)
        if self._negative.tolerates(score):
            self._waiting.add(producer)
        else:
            self._waiting.discard(producer)

    def _complete(self) -> None:
        """Give fusions that the stage after the pass does not name what the rules give them."""
        for fusion, formed in self._formed.items():
            if formed is None and fusion.parent is not None:
                fusion.fusion_kind = self._model.emission(fusion).kind.fusion_kind
                if is_generic_triton(fusion):
                    tiling = self._state.triton.find_best_tiling(FusionBody(fusion))
                    if isinstance(tiling, Tiling):
                        set_triton_config(fusion, tiling)

    def _tile(self) -> None:
        """Find tiles in the order of the scores: the compiler reuses those of equal pairs."""
        if not self._has_triton:
            return
        for producer in self._asked:
            if producer.parent is not None and not is_fusible_bitcast(producer):
                consumers = [user for user in producer.users if not is_fusible_bitcast(user)]
                if is_generic_triton(producer) or any(map(is_generic_triton, consumers)):
                    all(self._decide(producer, consumer).allow for consumer in consumers)

    def _tell_refusals_of(
        self, producer: MutableInstruction, consumers: Sequence[MutableInstruction]
    ) -> None:
        if is_fusible_bitcast(producer):
            self._scores[producer] = INFINITE
        elif consumers and not is_fusible_bitcast(consumers[0]):
            is_followed = (
                self._agree_on_refusal(producer)
                if self._scores.get(producer) is None
                else self._agree_on_score(producer, consumers)
            )
            if not is_followed:
                self.differing += 1
                return
        super()._tell_refusals_of(producer, consumers)

    def _agree_on_refusal(self, producer: MutableInstruction) -> bool:
        """Return whether the rules refuse a producer that the record refuses, or does not have."""
        refused = self._refusal(producer)
        if refused is None:
            return False
        reasons = (refused.decision.message, *refused.others)
        self.differing += self._reasons.get(producer, reasons[0]) not in reasons
        return True

    def _agree_on_score(
        self, producer: MutableInstruction, consumers: Sequence[MutableInstruction]
    ) -> bool:
        """Return whether a producer that the record scores is one that it did not mean to fuse."""
        score = self._scores[producer]
        if producer in self._rounded:
            unfused, fused = self._model.estimate(producer, producer.users)
            score = self._scores[producer] = unfused - fused
        if score is None or self._negative.tolerates(score):
            return False
        decisions = self._decisions.setdefault(producer, {})
        self.differing += any(not decision.allow for decision in decisions.values())
        decisions.update(dict.fromkeys(consumers, NO_OBJECTION))
        return True

    def _kind_with(self, constant: MutableInstruction, user: MutableInstruction) -> str:
        formed = self._formed.get(user)
        return super()._kind_with(constant, user) if formed is None else formed.kind
