"""Replays the main GPU fusion pass, which fuses the producer with the largest benefit first.

Source: xla/backends/gpu/transforms/priority_fusion.cc.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from fusionscope.gpu.cost.duration import INFINITE, Duration
from fusionscope.gpu.cost.memory import KERNEL_LAUNCH
from fusionscope.gpu.cost.model import ConsumerCosts, CostModel, Estimate, PairCost
from fusionscope.gpu.emitters import EmitterKind, is_generic_triton
from fusionscope.gpu.state import GpuState, is_fusible_bitcast
from fusionscope.graph.fusing import create_fusion, fuse_instruction, merge_fusion
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    reorder_users,
    slots_of,
)
from fusionscope.graph.properties import is_fusible
from fusionscope.passes.context import Deadline, PassContext
from fusionscope.passes.gpu.priority_fusion.branches import Branch, Changed, Rules
from fusionscope.passes.gpu.priority_fusion.recorded_order import (
    RecordDiffers,
    RecordedOrder,
    RecordedScores,
)
from fusionscope.passes.gpu.priority_fusion.rules import (
    AllUsers,
    GpuPairRule,
    NegativeBenefit,
    RulePhase,
    TritonHeroless,
)
from fusionscope.passes.gpu.triton_fusion import set_triton_config
from fusionscope.passes.inplace import InPlaceRule, check_in_place
from fusionscope.passes.overrides import Allowed, Forbidden
from fusionscope.passes.plan import Event, FusionPlan, Merged, PairDecision, Refused, Scored
from fusionscope.passes.rule import NO_OBJECTION, Decision, Rule, RuleBook, first_decision
from fusionscope.passes.state import FusionPair
from fusionscope.progress import Progress, about, silent

# A producer after its priority, negated, and its rank: the least comes first.
_Ranked: TypeAlias = tuple[Duration, tuple[float, int], MutableInstruction]

_NOT_SCORED = frozenset({"get-tuple-element", "parameter", "tuple"})
_FUSED_WITHIN = frozenset({"conditional", "fusion", "while"})
_STREAM = "_xla_stream_annotation"


def run(graph: MutableModule, book: RuleBook[Rule], context: PassContext) -> FusionPlan:
    target = context.target
    return PriorityFusion(
        graph=graph,
        book=book,
        state=context.gpu_state(),
        ids=target.ids,
        users=target.users,
        recorded=target.recorded,
        scores=target.scores,
        tells_events=target.has_record,
        deadline=context.deadline,
        tells_decisions=context.tells_decisions,
        branches=context.branches,
        progress=context.progress,
    ).run()


def grown(consumer: str) -> str:
    """Return the name of the fusion that replaced ``consumer``, without its number, which depends
    on the order of computations and of users.
    """
    return f"fusion of {consumer}"


class GpuJudge:
    """Asks the rules of a book whether two instructions can be fused."""

    def __init__(self, book: RuleBook[Rule], state: GpuState) -> None:
        self._state = state
        self._forbidden = [rule for rule in book if isinstance(rule, Forbidden)]
        self._allowed = [rule for rule in book if isinstance(rule, Allowed)]
        rules = [rule for rule in book if isinstance(rule, GpuPairRule)]
        self._checks = {
            phase: [rule.check for rule in rules if phase in rule.stages] for phase in RulePhase
        }
        # What a user's wish does not skip.
        self._legal_checks = {
            phase: [
                rule.check
                for rule in rules
                if phase in rule.stages and (rule.is_legality or isinstance(rule, TritonHeroless))
            ]
            for phase in RulePhase
        }
        self._in_place = tuple(rule for rule in book if isinstance(rule, InPlaceRule))

    def decide(self, producer: MutableInstruction, consumer: MutableInstruction) -> Decision:
        """Source: CanFuse."""
        pair = _pair(producer, consumer)
        refusal = first_decision(rule.check(pair) for rule in self._forbidden)
        if refusal is not None:
            return refusal
        is_forced = self.is_forced(producer, consumer)
        refusal = self._refusal(RulePhase.FIRST, pair, legal_only=is_forced)
        if refusal is not None:
            return refusal
        refusal = self._refusal(RulePhase.TRITON, pair, legal_only=is_forced)
        if refusal is None:
            return NO_OBJECTION
        if is_generic_triton(producer) or is_generic_triton(consumer):
            return refusal
        refusal = self._refusal(RulePhase.EMITTER, pair, legal_only=is_forced)
        return refusal or check_in_place(self._in_place, pair) or NO_OBJECTION

    @property
    def has_wishes(self) -> bool:
        """Return whether a user forces any pair to be fused."""
        return bool(self._allowed)

    def is_forced(self, producer: MutableInstruction, consumer: MutableInstruction) -> bool:
        """Return whether a user forces the pair to be fused, regardless of cost."""
        if not self._allowed:
            return False
        pair = _pair(producer, consumer)
        return any(allowed.check(pair) is not None for allowed in self._allowed)

    def refuses_constant(
        self, constant: MutableInstruction, user: MutableInstruction
    ) -> Decision | None:
        """Source: CanFuseConstant."""
        pair = _pair(constant, user)
        forbidden = first_decision(rule.check(pair) for rule in self._forbidden)
        return forbidden or self._refusal(RulePhase.CONSTANT, pair)

    def _refusal(
        self, phase: RulePhase, pair: FusionPair, *, legal_only: bool = False
    ) -> Decision | None:
        """Return the first refusal. ``legal_only`` asks only the rules that correctness depends on,
        and ``TritonHeroless``.
        """
        # Not ``first_decision``: a generator for every pair takes as long as the rules.
        for check in (self._legal_checks if legal_only else self._checks)[phase]:
            decision = check(pair, self._state)
            if decision is not None:
                return decision
        return None


def _pair(producer: MutableInstruction, consumer: MutableInstruction) -> FusionPair:
    return FusionPair(producer, consumer, slots_of(consumer, producer)[0])


def fusible_computations(graph: MutableModule) -> list[MutableComputation]:
    """Return the computations in which fusions can be formed: the entry and those of control flow.

    Source: xla/service/gpu/gpu_fusible.cc, GetFusibleComputations.
    """
    order = graph.post_order()
    left_out = {
        callee
        for computation in order
        for instruction in computation.instructions
        if instruction.called
        and instruction.opcode not in _FUSED_WITHIN
        and not (
            instruction.opcode == "call"
            and _STREAM in instruction.attributes.get("frontend_attributes", "")
        )
        for callee in instruction.called
    }
    return [
        computation
        for computation in order
        if not computation.is_fused and computation not in left_out
    ]


@dataclass(slots=True, kw_only=True)
class PriorityFusion:
    """The pass over ``graph``, with the rules of ``book``.

    ``ids`` are the unique ids of instructions by computation and name, which break ties; without
    them, positions in the text do. ``users`` are the ordered users of instructions by name, as far
    as they are known: no text shows the order. ``recorded``, if given, decides the order of equal
    priorities. The plan has events only if ``tells_events``: each names all users of a producer,
    every time that one of them changes. Raises ``OutOfTime`` at the ``deadline``.

    With ``scores``, which takes ``recorded`` too, neither rules nor the cost model are asked about
    a producer before the end, and then only about those that were not fused. Raises
    ``RecordDiffers`` if the pass comes to a producer that the record does not score there, or
    rules and record contradict each other. The ``branches`` that it comes to the end of, in the
    process in which it began, have the same result.
    """

    graph: MutableModule
    book: RuleBook[Rule]
    state: GpuState
    ids: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    users: Mapping[str, Sequence[str]] = field(default_factory=dict)
    recorded: RecordedOrder | None = None
    scores: RecordedScores | None = None
    tells_events: bool = True
    tells_decisions: bool = True
    branches: tuple[Branch, ...] = ()
    deadline: Deadline | None = None
    progress: Progress = silent

    def run(self) -> FusionPlan:
        decisions: list[PairDecision] = []
        events: list[Event] = []
        for computation in fusible_computations(self.graph):
            for instruction in computation.instructions:
                if instruction.name in self.users:
                    reorder_users(instruction, self.users[instruction.name])
            self.state.triton.forget_pairs()
            run = _Run(self, computation)
            run.run()
            events += run.events
            decisions += run.decisions
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph, tuple(events))


class _Run:
    """The pass in one computation."""

    def __init__(self, parent: PriorityFusion, computation: MutableComputation) -> None:
        self.events: list[Event] = []
        self.decisions: list[PairDecision] = []
        self._state = parent.state
        self._model = parent.state.model
        self._judge = GpuJudge(parent.book, parent.state)
        self._computation = computation
        self._ids = _Ids(computation, parent.ids.get(computation.name, {}), parent.recorded)
        self._queue = _Queue(self._ids)
        self._recorded_scores = parent.scores
        self._tells_events = parent.tells_events
        self._deadline = parent.deadline
        self._progress = about(parent.book.pass_name, parent.progress)
        self._rules = Rules(parent.book)
        self._parent = parent
        self._followers = [
            _Follower(
                branch, Changed(branch, parent.book), GpuJudge(branch.book, parent.state), self._ids
            )
            for branch in parent.branches
            if branch.is_open
        ]
        self._decisions: dict[MutableInstruction, dict[MutableInstruction, Decision]] = {}
        # The part of them that the compiler has asked for too.
        self._decided: dict[MutableInstruction, set[MutableInstruction]] = {}
        # Producers that all their consumers accepted when last asked.
        self._taken: set[MutableInstruction] = set()
        # The share of each consumer in the estimates of producers that are estimated with all
        # consumers.
        self._shares: dict[MutableInstruction, _Shares] = {}
        # The consumers that the last fusion changed or removed, and its producer if that is gone.
        self._changed: tuple[MutableInstruction, ...] = ()
        # For producers that will be scored again: the fusions that they now go into, and the times
        # of their removed consumers.
        self._new_consumers: dict[MutableInstruction, list[MutableInstruction]] = {}
        self._gone: dict[MutableInstruction, Estimate] = {}
        # With recorded scores: the producers that have one since they last changed.
        self._scored: set[MutableInstruction] = set()
        # The chosen consumers of producers that only go into some of theirs.
        self._some: dict[MutableInstruction, list[MutableInstruction]] = {}
        # The last priority of each producer, or None if it could not be fused.
        self._scores: dict[MutableInstruction, Duration | None] = {}

    def run(self) -> None:
        order = self._computation.post_order()
        for instruction in order:
            self._estimate(instruction)
        producers = [
            instruction
            for instruction in order
            if instruction.opcode not in _NOT_SCORED
            and instruction.users
            and is_fusible(instruction)
        ]
        self._progress(f"scoring {len(producers):,} producers")
        self._score(producers)
        while (producer := self._next()) is not None:
            self._progress(f"{len(self._queue):,} producers left")
            consumers = self._some.pop(producer, None) or self._ids.in_turn(producer)
            if is_fusible_bitcast(producer):
                consumers = [
                    consumer for consumer in consumers if self._decide(producer, consumer).allow
                ]
            if consumers:
                self._fuse_into_all(producer, consumers)
        if self._parent.tells_decisions:
            self._tell_refusals()
        self._part(lambda follower: follower.changed.changes_constants)
        self._fuse_constants()

    def _next(self) -> MutableInstruction | None:
        """Return the next producer, by the rules of a branch in the copy that goes on with it."""
        first = self._queue.first()
        self._part(lambda follower: self._goes_first(follower, first))
        return self._queue.pop()

    def _goes_first(self, follower: _Follower, first: _Ranked | None) -> bool:
        """Return whether the rules of a branch have another next step, where ``first`` is next."""
        ranked = follower.queue.first()
        if ranked is not None and (first is None or ranked[:2] < first[:2]):
            return True
        if first is None or not is_fusible_bitcast(first[2]):
            return False
        return any(
            self._may_differ(follower, first[2], user, self._decision(first[2], user))
            for user in first[2].users
        )

    def _may_differ(
        self,
        follower: _Follower,
        producer: MutableInstruction,
        consumer: MutableInstruction,
        decision: Decision,
    ) -> bool:
        return follower.changed.lifts(decision) or (
            not decision.allow and follower.forces(producer, consumer)
        )

    def _part(self, is_over: Callable[[_Follower], bool]) -> None:
        """Let each branch go on alone for which ``is_over`` says that the common part ends."""
        for follower in list(filter(is_over, self._followers)):
            self._followers.remove(follower)
            if follower.branch.part():
                self._go_on_with(follower)
                return

    def _go_on_with(self, follower: _Follower) -> None:
        """Go on with the rules of a branch: discard what the rules said that they change."""
        self._parent.book, self._parent.branches, self._followers = follower.branch.book, (), []
        self._judge, self._rules = follower.judge, follower.changed.rules
        for producer, decisions in self._decisions.items():
            for consumer, decision in list(decisions.items()):
                if self._may_differ(follower, producer, consumer, decision):
                    del decisions[consumer]
                    self._decided.get(producer, set()).discard(consumer)
        for producer in follower.queue.producers():
            self._place(producer, self._priority(producer))

    def _follow(
        self, follower: _Follower, producer: MutableInstruction, priority: Duration | None
    ) -> None:
        """Rank a producer by the rules of a branch, if those that run do not fuse it."""
        follower.queue.remove(producer)
        if priority is not None and self._rules.tolerates(priority):
            return
        changed = self._changed_priority(follower, producer, priority)
        if changed is not None and follower.changed.rules.tolerates(changed):
            follower.queue.set(producer, changed)

    def _changed_priority(
        self, follower: _Follower, producer: MutableInstruction, priority: Duration | None
    ) -> Duration | None:
        """Return the priority by the rules of a branch. ``priority`` is the one by those that run,
        None for a refusal.
        """
        users, may_force = producer.users, follower.changed.may_force(producer)
        forced = [user for user in users if may_force and follower.judge.is_forced(producer, user)]
        if priority is not None:
            return max(priority, 0) if forced else priority
        decisions = self._decisions.get(producer, {}).values()
        if producer.opcode == "constant" or not (forced or follower.changed.lifts_any(decisions)):
            return None
        consumers = [user for user in users if not is_fusible_bitcast(user)]
        with self._state.triton.aside():
            some = [user for user in consumers if follower.decide(producer, user).allow]
        time = KERNEL_LAUNCH + self._model.time(producer).total
        if consumers and len(some) == len(consumers):
            benefit = time + follower.benefit(producer, users, self._model)
            return max(benefit, 0) if forced else benefit
        if follower.changed.rules.asks_all_users:
            return 0 if any(user in forced for user in some) else None
        return follower.benefit(producer, some, self._model) if some else None

    def _estimate(self, instruction: MutableInstruction) -> None:
        if self._recorded_scores is None and self._state.facts(instruction).is_fusible:
            self._model.time(instruction)

    def _decision(self, producer: MutableInstruction, consumer: MutableInstruction) -> Decision:
        decisions = self._decisions.setdefault(producer, {})
        if consumer not in decisions:
            decisions[consumer] = self._judge.decide(producer, consumer)
        return decisions[consumer]

    def _decide(self, producer: MutableInstruction, consumer: MutableInstruction) -> Decision:
        """Return the decision, with the side effect of the compiler's query: if Triton can compute
        the two together, their time is known from then on. Source: CanFuseCached, CanFuseTriton.
        """
        decision = self._decision(producer, consumer)
        decided = self._decided.setdefault(producer, set())
        if consumer not in decided:
            decided.add(consumer)
            triton = self._state.triton
            tiling = triton.known_tiling(triton.identity(producer, consumer))
            if decision.allow and tiling is not None:
                self._model.set_pair(producer, consumer, tiling.total)
        return decision

    def _score(self, producers: Sequence[MutableInstruction]) -> None:
        """Source: ComputeAndSetPriorities."""
        producers = self._ids.in_scored_order(producers)
        scores = [self._priority(producer) for producer in producers]
        for producer, priority in zip(producers, scores, strict=True):
            self._place(producer, priority)
            for follower in self._followers:
                self._follow(follower, producer, priority)

    def _place(self, producer: MutableInstruction, priority: Duration | None) -> None:
        if priority is None or not self._rules.tolerates(priority):
            self._queue.remove(producer)
        else:
            self._queue.set(producer, priority)
        self._scores[producer] = priority

    def _priority(self, producer: MutableInstruction) -> Duration | None:
        """Return the time that fusing ``producer`` saves, or None if it cannot be fused or is a
        constant.

        Source: CalculateProducerPriority.
        """
        if self._deadline is not None:
            self._deadline.check()
        self._some.pop(producer, None)
        if is_fusible_bitcast(producer):
            return INFINITE
        if producer.opcode == "constant":
            return None
        if self._recorded_scores is not None:
            return self._recorded_priority(producer, self._recorded_scores)
        refusal = None if self._is_still_taken(producer) else self._refusal(producer)
        if refusal is not None:
            self._tell(refusal)
            return self._priority_for_some(producer)
        gone = self._gone.get(producer)
        if gone is not None:
            unfused, fused = self._model.estimate(producer, self._new_consumers[producer])
        else:
            unfused, fused = self._estimate_all(producer)
        before: Duration = 0
        if gone is not None:
            unfused, fused = unfused - gone.unfused, fused - gone.fused
            before = self._queue.priority(producer)
        if self._tells_events:
            names = tuple(user.name for user in producer.users)
            self._tell(Scored(producer.name, names, fused, unfused))
        benefit = before + unfused - fused
        if self._judge.has_wishes and any(
            self._judge.is_forced(producer, consumer) for consumer in producer.users
        ):
            return max(benefit, 0)
        return benefit

    def _recorded_priority(
        self, producer: MutableInstruction, scores: RecordedScores
    ) -> Duration | None:
        """Return the same, by the record."""
        score = scores.get(self._ids.scoring(producer))
        if score is None:
            raise RecordDiffers
        self._ask_triton(producer)
        if score.is_refused:
            return None
        self._scored.add(producer)
        if score.estimate is None:
            unfused, fused = self._model.estimate(producer, producer.users)
            return unfused - fused
        unfused, fused = score.estimate
        before = self._queue.priority(producer) if producer in self._gone else 0
        return before + unfused - fused

    def _ask_triton(self, producer: MutableInstruction) -> None:
        """Ask what the compiler asks where it learns a tiling, which comes with times."""
        consumers = [user for user in producer.users if not is_fusible_bitcast(user)]
        if is_generic_triton(producer) or any(map(is_generic_triton, consumers)):
            for consumer in consumers:
                if not self._decide(producer, consumer).allow:
                    break

    def _tell(self, event: Event) -> None:
        if self._tells_events:
            self.events.append(event)

    def _priority_for_some(self, producer: MutableInstruction) -> Duration | None:
        """Return the priority of fusing ``producer`` into some of its consumers only, which
        requires user overrides: the consumers that accept it, or those that it is forced into.
        """
        if not self._rules.asks_all_users:
            wishes = list(producer.users)
        else:
            wishes = [user for user in producer.users if self._judge.is_forced(producer, user)]
        some = [
            consumer
            for consumer in wishes
            if not is_fusible_bitcast(consumer) and self._decide(producer, consumer).allow
        ]
        if not some:
            return None
        self._some[producer] = some
        if self._rules.asks_all_users:
            return 0
        unfused, fused = self._model.estimate(producer, some)
        return unfused - fused - KERNEL_LAUNCH - self._model.time(producer).total

    def _estimate_all(self, producer: MutableInstruction) -> Estimate:
        """Return the estimate for ``producer`` and all its consumers, from the known
        share of each.
        """
        shares = self._shares.get(producer)
        if shares is None:
            shares = self._shares[producer] = _Shares()
            for consumer in producer.users:
                shares.add(consumer, self._model.share(producer, consumer))
        unfused, fused = shares.total
        return Estimate(KERNEL_LAUNCH + self._model.time(producer).total + unfused, fused)

    def _is_still_taken(self, producer: MutableInstruction) -> bool:
        """Return whether all consumers still accept ``producer``, asking only those that changed: a
        value with many users is scored again for each of them.
        """
        new = self._new_consumers.get(producer)
        if (
            new is None
            or producer not in self._taken
            or any(
                is_fusible_bitcast(consumer) or not self._decide(producer, consumer).allow
                for consumer in new
            )
        ):
            return False
        shares = self._shares.get(producer)
        if shares is not None:
            for consumer in self._changed:
                shares.remove(consumer)
            for consumer in new:
                shares.add(consumer, self._model.share(producer, consumer))
        return True

    def _refusal(self, producer: MutableInstruction) -> Refused | None:
        """Source: CanFuseWithAllNonBitcastUsers."""
        self._taken.discard(producer)
        self._shares.pop(producer, None)
        consumers = [user for user in producer.users if not is_fusible_bitcast(user)]
        for index, consumer in enumerate(consumers):
            decision = self._decide(producer, consumer)
            if not decision.allow:
                later = (
                    self._decision(producer, consumer)
                    for consumer in consumers[index + 1 :]
                    if self._parent.tells_decisions
                )
                other_messages = tuple(decision.message for decision in later if not decision.allow)
                return Refused(producer.name, consumer.name, decision, other_messages)
        if consumers:
            self._taken.add(producer)
            return None
        message = AllUsers.only_bitcasts if producer.users else AllUsers.no_users
        return Refused(producer.name, "", AllUsers().refuse(message))

    def _fuse_into_all(
        self, producer: MutableInstruction, consumers: list[MutableInstruction]
    ) -> None:
        """Source: RunImpl."""
        triton = self._state.triton
        if self._recorded_scores is not None:
            for member in consumers:
                if is_generic_triton(producer) or is_generic_triton(member):
                    self._decide(producer, member)  # for the tiling that comes with it
        identities = {consumer: triton.identity(producer, consumer) for consumer in consumers}
        tilings = {member: triton.known_tiling(pair) for member, pair in identities.items()}
        to_score: dict[MutableInstruction, None] = {}
        for consumer in consumers:
            if is_fusible_bitcast(consumer):
                continue
            before = consumer.name
            kind = self._model.kind(producer, consumer)
            fusion = self._fuse(producer, consumer, kind)
            tiling = tilings[consumer]
            triton.fused(fusion, identities[consumer], tiling)
            if tiling is not None:
                set_triton_config(fusion, tiling)
            self._tell(Merged(fusion.name, producer.name, before))
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
            if fusion is not consumer:
                to_score.pop(consumer, None)
                self._drop(consumer)
            for operand in fusion.operands:
                if (
                    operand is not producer
                    and operand.opcode not in ("constant", "get-tuple-element")
                    and is_fusible(operand)
                ):
                    to_score[operand] = None
                    self._new_consumers.setdefault(operand, []).append(fusion)
            to_score[fusion] = None
        self._collect_gone(producer, consumers)
        if not producer.users:
            self._invalidate(producer)
            self._drop(producer)
            self._computation.remove(producer)
            if producer.opcode == "fusion":  # its clones are in the consumers
                self._model.forget_inside(producer)
                producer.fused.dissolve()
        for consumer in consumers:
            self._invalidate(consumer)
        for member in to_score:
            self._estimate(member)
        self._changed = (*consumers, *([producer] if producer.parent is None else []))
        self._score(list(to_score))
        self._new_consumers.clear()
        self._gone.clear()

    def _drop(self, producer: MutableInstruction) -> None:
        for queue in (self._queue, *(follower.queue for follower in self._followers)):
            queue.remove(producer)

    def _fuse(
        self, producer: MutableInstruction, consumer: MutableInstruction, kind: EmitterKind
    ) -> MutableInstruction:
        """Source: Fuse."""
        fusion = consumer
        if consumer.opcode == "fusion":
            fusion.fusion_kind = kind.fusion_kind
        else:
            fusion = create_fusion(consumer, kind.fusion_kind)
            self._computation.replace(consumer, fusion)
            self._ids.add(fusion, consumer)
        if producer.opcode == "fusion":
            merge_fusion(fusion, producer)
        else:
            fuse_instruction(fusion, producer)
        return fusion

    def _collect_gone(
        self, producer: MutableInstruction, consumers: list[MutableInstruction]
    ) -> None:
        """Collect the times of removed consumers. Source: ComputeRuntimesOfRemovedConsumers."""
        for operand in self._new_consumers:
            if operand not in self._queue or operand in self._some:
                continue
            if self._recorded_scores is not None:
                if operand in self._scored:
                    self._gone[operand] = Estimate(0, 0)  # the record has the difference itself
                continue
            pair_times = self._model.known_pairs(operand)
            if pair_times is None:
                continue
            unfused: Duration = self._model.known_time(operand) + KERNEL_LAUNCH
            fused: Duration = 0
            for consumer in (*consumers, producer):
                if consumer in pair_times:
                    fused += pair_times[consumer]
                    unfused += self._model.known_time(consumer)
            self._gone[operand] = Estimate(unfused, fused)

    def _invalidate(self, instruction: MutableInstruction) -> None:
        """Source: InvalidateCaches."""
        self._decisions.pop(instruction, None)
        self._decided.pop(instruction, None)
        self._taken.discard(instruction)
        self._shares.pop(instruction, None)
        self._scored.discard(instruction)
        for operand in instruction.operands:
            if operand in self._decisions:
                self._decisions[operand].pop(instruction, None)
                self._decided.get(operand, set()).discard(instruction)
        for follower in self._followers:
            follower.changed.forget(instruction)
        self._model.invalidate(instruction)
        self._state.changed(instruction)

    def _tell_refusals(self) -> None:
        """Record the refusals of all producers that were not fused, for each of their consumers.

        A user that is a bitcast is skipped if there are others.
        """
        for producer in self._ids.in_order():
            if producer.opcode in ("constant", "parameter"):
                continue
            consumers = list(producer.users)
            if not is_fusible_bitcast(producer):
                real_consumers = [
                    consumer for consumer in consumers if not is_fusible_bitcast(consumer)
                ]
                consumers = real_consumers or consumers
            if self._scores.get(producer) is not None:
                for each in consumers:  # a recorded score takes no decision
                    self._decide(producer, each)
            refused = _Told(producer)
            for consumer in consumers:
                self.decisions.append(self._considered(refused, consumer))

    def _considered(self, refused: _Told, consumer: MutableInstruction) -> PairDecision:
        producer = refused.producer
        decision = self._decision(producer, consumer)
        cost: PairCost | None = None
        score = self._scores.get(producer)
        if is_fusible_bitcast(consumer) and not is_fusible_bitcast(producer):
            decision = AllUsers().refuse(AllUsers.only_bitcasts)
        elif decision.allow and score is not None:
            refused.costs = refused.costs or self._model.consumer_costs(producer)
            share = self._model.consumer_share(producer, consumer)
            cost = PairCost(score, share, refused.costs)
            decision = NegativeBenefit().refuse_by(cost)
        elif decision.allow:
            refused.refused = refused.refused or self._refusal(producer)
            if refused.refused is None and self._recorded_scores is not None:
                raise RecordDiffers
            assert refused.refused is not None, f"{producer.name} can be fused, but has no priority"
            decision = refused.refusal()
        elif (
            score is not None
            and self._recorded_scores is not None
            and not is_fusible_bitcast(producer)
        ):
            raise RecordDiffers
        return PairDecision(
            computation=self._computation.name,
            producer=producer.name,
            consumer=consumer.name,
            decision=decision,
            cost=cost,
            is_recorded=True,
        )

    def _fuse_constants(self) -> None:
        for constant in self._ids.in_order():
            if constant.opcode != "constant":
                continue
            for user in list(constant.users):
                refusal = self._judge.refuses_constant(constant, user)
                fusion: str | None = None
                before = user.name
                if refusal is None:
                    kind = self._model.kind(constant, user)
                    fusion = self._fuse(constant, user, kind).name
                    self._state.changed(user)
                self.decisions.append(
                    PairDecision(
                        computation=self._computation.name,
                        producer=constant.name,
                        consumer=before,
                        decision=refusal or NO_OBJECTION,
                        fusion=fusion,
                    )
                )


class _Shares:
    """The share of each consumer in the times of a producer and its consumers, launches included.
    Finite durations are integers, so their sum does not depend on the order.
    """

    def __init__(self) -> None:
        self._known: dict[MutableInstruction, Estimate] = {}
        self._infinite: set[MutableInstruction] = set()
        self._unfused: Duration = 0
        self._fused: Duration = 0

    @property
    def total(self) -> Estimate:
        if not self._infinite:
            return Estimate(self._unfused, self._fused)
        infinite = [self._known[share] for share in self._infinite]
        return Estimate(
            self._unfused + sum(share.unfused for share in infinite),
            self._fused + sum(share.fused for share in infinite),
        )

    def add(self, consumer: MutableInstruction, share: Estimate) -> None:
        self.remove(consumer)
        self._known[consumer] = share
        if INFINITE in share:
            self._infinite.add(consumer)
        else:
            self._unfused += share.unfused
            self._fused += share.fused

    def remove(self, consumer: MutableInstruction) -> None:
        share = self._known.pop(consumer, None)
        if share is None:
            return
        if consumer in self._infinite:
            self._infinite.remove(consumer)
        else:
            self._unfused -= share.unfused
            self._fused -= share.fused


@dataclass(slots=True)
class _Told:
    """A producer that was not fused, with the facts that all its consumers share."""

    producer: MutableInstruction
    costs: ConsumerCosts | None = None
    refused: Refused | None = None

    def refusal(self) -> Decision:
        """Return what there is to say of the consumers that could take it."""
        assert self.refused is not None
        users = [user for user in self.producer.users if not is_fusible_bitcast(user)]
        names = (user.result_name for user in users if user.name == self.refused.consumer)
        return AllUsers().refuse_because(
            next(names, self.refused.consumer),
            self.refused.decision,
            1 + len(self.refused.others),
            len(users),
        )


class _Ids:
    """Breaks ties between instructions of a computation: the newer one comes first, or the one that
    a record has earlier.
    """

    def __init__(
        self,
        computation: MutableComputation,
        ids: Mapping[str, int],
        recorded: RecordedOrder | None,
    ) -> None:
        self._next = max(ids.values(), default=0) + 1
        self._ids: dict[MutableInstruction, int] = {}
        self._grew_from: dict[MutableInstruction, str] = {}
        self._recorded = recorded
        self._scored: Counter[str] = Counter()
        for instruction in computation.instructions:
            if instruction.name in ids:
                self._ids[instruction] = ids[instruction.name]
            else:
                self.add(instruction)

    def add(
        self, instruction: MutableInstruction, consumer: MutableInstruction | None = None
    ) -> None:
        """Record that ``instruction`` is newer than all others, and replaced ``consumer``."""
        self._ids[instruction] = self._next
        self._next += 1
        if consumer is not None:
            self._grew_from[instruction] = grown(self._name(consumer))

    def _name(self, instruction: MutableInstruction) -> str:
        return self._grew_from.get(instruction, instruction.name)

    def rank(self, producer: MutableInstruction) -> tuple[float, int]:
        """Return the key of a producer; the smallest comes first."""
        place: float = 0
        if self._recorded is not None:
            place = self._recorded.producers.get(self._name(producer), math.inf)
        return place, -self._ids[producer]

    def in_turn(self, producer: MutableInstruction) -> list[MutableInstruction]:
        """Return the users of a producer, in the order in which it is fused into them."""
        users = list(producer.users)
        if self._recorded is not None:
            name, pairs = self._name(producer), self._recorded.pairs
            users.sort(key=lambda user: pairs.get((name, self._name(user)), 0))
        return users

    def in_scored_order(
        self, producers: Sequence[MutableInstruction]
    ) -> Sequence[MutableInstruction]:
        """Return ``producers`` in the order in which they are scored now."""
        if self._recorded is None:
            return producers
        places: dict[MutableInstruction, float] = {}
        for producer in producers:
            name = self._name(producer)
            places[producer] = self._recorded.scored.get((name, self._scored[name]), math.inf)
            self._scored[name] += 1
        return sorted(producers, key=places.__getitem__)

    def scoring(self, producer: MutableInstruction) -> tuple[str, int]:
        """Return the name of a producer that is scored now, and how often it was before."""
        name = self._name(producer)
        return name, self._scored[name] - 1

    def in_order(self) -> list[MutableInstruction]:
        """Return the remaining instructions, the oldest first."""
        return sorted(
            (instruction for instruction in self._ids if instruction.parent is not None),
            key=self._ids.__getitem__,
        )


class _Queue:
    """Producers by the time that fusing them saves."""

    def __init__(self, ids: _Ids) -> None:
        self._ids = ids
        self._priorities: dict[MutableInstruction, Duration] = {}
        self._heap: list[_Ranked] = []

    def __contains__(self, producer: MutableInstruction) -> bool:
        return producer in self._priorities

    def __len__(self) -> int:
        return len(self._priorities)

    def priority(self, producer: MutableInstruction) -> Duration:
        return self._priorities[producer]

    def set(self, producer: MutableInstruction, priority: Duration) -> None:
        if self._priorities.get(producer) != priority:
            self._priorities[producer] = priority
            heapq.heappush(self._heap, (-priority, self._ids.rank(producer), producer))

    def remove(self, producer: MutableInstruction) -> None:
        self._priorities.pop(producer, None)

    def producers(self) -> list[MutableInstruction]:
        return list(self._priorities)

    def first(self) -> _Ranked | None:
        """Return the producer that comes next, with its rank."""
        while self._heap and self._priorities.get(self._heap[0][2]) != -self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def pop(self) -> MutableInstruction | None:
        first = self.first()
        if first is None:
            return None
        heapq.heappop(self._heap)
        del self._priorities[first[2]]
        return first[2]


class _Follower:
    """A branch of a run in one computation: the producers that only it fuses, by the time that
    this saves.
    """

    def __init__(self, branch: Branch, changed: Changed, judge: GpuJudge, ids: _Ids) -> None:
        self.branch = branch
        self.changed = changed
        self.judge = judge
        self.queue = _Queue(ids)

    def forces(self, producer: MutableInstruction, consumer: MutableInstruction) -> bool:
        return self.changed.may_force(producer) and self.judge.is_forced(producer, consumer)

    def decide(self, producer: MutableInstruction, consumer: MutableInstruction) -> Decision:
        decisions = self.changed.decisions.setdefault(producer, {})
        if consumer not in decisions:
            decisions[consumer] = self.judge.decide(producer, consumer)
        return decisions[consumer]

    def benefit(
        self,
        producer: MutableInstruction,
        consumers: Iterable[MutableInstruction],
        model: CostModel,
    ) -> Duration:
        """Return the time that fusing ``producer`` into ``consumers`` saves, besides its own."""
        shares = self.changed.shares.setdefault(producer, {})
        unfused: Duration = 0
        fused: Duration = 0
        for consumer in consumers:
            if consumer not in shares:
                shares[consumer] = model.share_aside(producer, consumer)
            unfused += shares[consumer].unfused
            fused += shares[consumer].fused
        return unfused - fused
