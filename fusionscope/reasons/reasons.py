"""Reasons for pairs that were not fused, from the compiler's records and a replay of its rules."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import inf
from typing import TypeAlias

from fusionscope.history.outcomes import Pair
from fusionscope.history.values import NumberedModule
from fusionscope.hlo import Instruction
from fusionscope.passes.causes import LibraryCall
from fusionscope.reasons.causes import (
    CAUSELESS,
    CONSUMER,
    PRODUCER,
    cause_at_dot,
    cause_of,
    end_at_fault,
    has_cause,
    is_outside_anywhere,
    passes_barrier,
    unfusible_opcode,
)
from fusionscope.reasons.evidence import Evidence, Reason
from fusionscope.reasons.inferred import InferredReasons
from fusionscope.reasons.producer_steps import Carriers, Uses, UseStep
from fusionscope.reasons.replayed import ReplayedReasons
from fusionscope.rules.messages import UNKNOWN, rule_of

# The recorded and the replayed reason, and all rules that kept a producer out of consumers.
_Answer: TypeAlias = "tuple[Reason | None, Reason | None, frozenset[str]]"

# The rule for a producer that could be fused into no consumer, and similar rules.
_ALL_USERS = "pf-all-users"
_ALL_CONSUMERS = frozenset({_ALL_USERS, "leg-fm-all-users"})


@dataclass(frozen=True, slots=True)
class Why:
    """The reason of a pair, its evidence, and the replay's reason if it differs."""

    reason: Reason
    evidence: str | None
    otherwise: Reason | None = None


class Reasons:
    """Gives the reasons of pairs, by the compiler's record and by a replay of its rules, or by
    ``inferred`` where these do not say.

    ``first`` is the stage before the first fusion pass, ``base`` the one that the recorded pass
    worked on.
    """

    def __init__(
        self,
        recorded: Evidence | None,
        replayed: ReplayedReasons | None,
        inferred: InferredReasons | None,
        first: NumberedModule,
        base: NumberedModule,
        backend: str | None,
    ) -> None:
        self._recorded = recorded
        self._replayed = replayed
        self._inferred = inferred
        self._backend = backend
        self._first = first
        self._base = base
        self._carriers = Carriers(base)
        # The reasons of the steps of a value that all its readers share.
        self._said: dict[Uses, _Said] = {}
        self._asked: dict[Hashable, _Answer] = {}
        # Very many pairs may end in one fusion or tuple.
        self._cause_of = cache(cause_of)
        self._passes_barrier = cache(passes_barrier)

    def find(self, pair: Pair) -> Why:
        recorded, replayed, also = self._ask(pair)
        why = _weigh(recorded, replayed, also)
        if self._inferred is not None and why.reason.rule == UNKNOWN:
            inferred = self._inferred.find(pair)
            if inferred is not None:
                return Why(replace(inferred, message=why.reason.message), "inferred")
        if why.reason.rule in _ALL_CONSUMERS:
            return replace(why, reason=self._with_obstacle(why.reason))
        if why.evidence is None:
            earlier = self._earlier(pair, None)
            return why if earlier is None else _by_replay(earlier)
        if why.reason.rule not in CAUSELESS:
            return why
        return self._with_cause(pair, why, is_recorded=recorded is not None)

    def _with_cause(self, pair: Pair, why: Why, *, is_recorded: bool) -> Why:
        """Replace a reason that says only that one end can never be fused.

        The new reason is the kind of that operation, or the decision of an earlier pass that gave
        it a kernel and left the other end out.
        """
        reason = why.reason
        ends = self._ends(pair)
        at_fault = end_at_fault(reason)
        if at_fault is None:
            at_fault = next((end for end in ends if has_cause(ends[end])), CONSUMER)
        opposite = PRODUCER if at_fault == CONSUMER else CONSUMER
        opcode = unfusible_opcode(reason)
        if not is_outside_anywhere(ends[at_fault]):
            if is_outside_anywhere(ends[opposite]):
                at_fault, opcode = opposite, None
            else:
                earlier = self._earlier(pair, at_fault)
                trusted = earlier is not None and not (is_recorded and earlier.is_guess)
                if earlier is not None and trusted and why.otherwise is None:
                    at_dot = cause_at_dot(earlier, ends[PRODUCER], ends[CONSUMER], pair.consumer)
                    if at_dot is not None:
                        earlier = replace(earlier, rule=at_dot.id)
                    return _by_replay(self._with_rule(earlier, reason.rule))
        if self._passes_barrier(pair.consumer):
            opcode = "opt-barrier"
        cause, numbers = self._cause_of(ends[at_fault], at_fault, opcode, self._backend)
        if cause is LibraryCall and self._replayed is not None:
            faulty = pair.producer if at_fault == PRODUCER else pair.consumer
            numbers += self._replayed.refusals_of(faulty.name)
        with_cause = replace(reason, rule=cause.id, numbers=numbers)
        return replace(why, reason=self._with_rule(with_cause, reason.rule))

    def _with_obstacle(self, reason: Reason) -> Reason:
        """Name the kind of consumer that refuses the producer, if its rule does not."""
        numbers = dict(reason.numbers)
        name, _, rule = str(numbers.get("because", "")).rpartition(", ")
        obstacle = self._in_base.get(name)
        if rule not in CAUSELESS or obstacle is None:
            return reason
        if obstacle.opcode == "tuple" and obstacle.is_root:
            cause = "the result of its computation"
        else:
            reader = (
                next(iter(obstacle.users), obstacle) if obstacle.opcode == "tuple" else obstacle
            )
            cause = self._cause_of(reader, CONSUMER, None, self._backend)[0].id
        numbers["because"] = f"{name}, {cause}"
        return replace(reason, numbers=tuple(numbers.items()))

    @cached_property
    def _in_base(self) -> dict[str, Instruction]:
        return {instruction.name: instruction for instruction in self._base.module.walk()}

    def _ends(self, pair: Pair) -> dict[str, Instruction]:
        producer, consumer = self._carriers.ends(pair)
        return {CONSUMER: consumer or pair.consumer, PRODUCER: producer or pair.producer}

    def _earlier(self, pair: Pair, at_fault: str | None) -> Reason | None:
        """Return the decision of an earlier pass on the pair or, if there is none, on the end that
        is ``at_fault``.
        """
        if self._replayed is None:
            return None
        uses, steps = self._first_carriers.find(pair)
        direct = UseStep(0, pair.producer.name, pair.consumer.name)
        ends = {PRODUCER: pair.producer.name, CONSUMER: pair.consumer.name}
        faulty = ends[at_fault] if at_fault is not None else None
        return self._replayed.earlier_reason((direct, *steps, *uses.passed_on), faulty)

    @cached_property
    def _first_carriers(self) -> Carriers:
        return Carriers(self._first)

    def _with_rule(self, reason: Reason, rule: str) -> Reason:
        """Return it with the rule by which the main pass refused the pair."""
        main = self._replayed.main_pass if self._replayed is not None else "rule"
        return replace(reason, numbers=(*reason.numbers, (main, rule)))

    def _ask(self, pair: Pair) -> _Answer:
        key = pair.path, pair.chain, pair.readers  # pairs of one value often share readers
        earlier = self._asked.get(key)
        if earlier is not None:
            return earlier
        uses, steps = self._carriers.find(pair)
        is_found = bool(uses.passed_on or steps)
        if not is_found:
            steps = [UseStep(0, pair.producer.name, pair.consumer.name)]
        shared = self._said.get(uses)
        if shared is None:
            shared = self._said[uses] = self._hear(uses.passed_on)
        answer = _first_of(shared, self._hear(steps))
        if is_found:
            self._asked[key] = answer
        return answer

    def _hear(self, steps: Iterable[UseStep]) -> _Said:
        statements = _Said()
        for step in steps:
            statements.add(step, self._recorded, self._replayed)
        return statements


def _first_of(shared: _Said, own_statements: _Said) -> _Answer:
    """Return the first decisions, among the steps that all readers share and a pair's own."""
    both = (shared, own_statements)
    recorded = min((s.recorded for s in both if s.recorded), key=_place, default=None)
    replayed = min((s.decided for s in both if s.decided), key=_place, default=None)
    end = replayed[0] if replayed else inf
    if replayed is None:
        replayed = max((s.undecided for s in both if s.undecided), key=_place, default=None)
    also = shared.rules_until(end) | own_statements.rules_until(end)
    return recorded[1] if recorded else None, replayed[1] if replayed else None, also


def _weigh(recorded: Reason | None, replayed: Reason | None, also: frozenset[str]) -> Why:
    """``also`` are the rules that kept the producer out of consumers."""
    if replayed is None:
        return Why(Reason(UNKNOWN, ""), None) if recorded is None else Why(recorded, "recorded")
    if recorded is None:
        return _by_replay(replayed)
    # Two rules can have the same message: the replay knows which one applied.
    if recorded.rule in (replayed.rule, rule_of(replayed.message)):
        return Why(replace(replayed, message=recorded.message), "agree")
    # The recorded reason is that of another consumer, as far as the replay can tell.
    if recorded.rule in also and not replayed.is_guess:
        return _by_replay(replayed)
    return Why(recorded, "disagree", replayed)


def _by_replay(reason: Reason) -> Why:
    return Why(reason, "guess" if reason.is_guess else "re-evaluated")


class _Said:
    """The recorded and replayed reasons of some steps, in their order.

    Of the recorded reasons the first one counts. Of the replayed ones, the first counts that says
    more than that only bitcasts are in between, or else the last one.
    """

    __slots__ = ("decided", "recorded", "rules", "undecided")

    def __init__(self) -> None:
        self.recorded: tuple[int, Reason] | None = None
        self.decided: tuple[int, Reason] | None = None
        self.undecided: tuple[int, Reason] | None = None
        # The rules that kept the producers of all steps up to one out of consumers.
        self.rules: list[tuple[int, frozenset[str]]] = []

    def add(
        self, step: UseStep, recorded: Evidence | None, replayed: ReplayedReasons | None
    ) -> None:
        if recorded is not None and self.recorded is None:
            reason = recorded.reason(step.producer, step.consumer)
            if reason is not None:
                self.recorded = step.place, reason
        if replayed is not None and self.decided is None:
            reason = replayed.reason(replayed.main_pass, step.producer, step.consumer)
            if reason is not None and _is_of_bitcasts(reason):
                self.undecided = step.place, reason
            elif reason is not None:
                self.decided = step.place, reason
            rules_before = self.rules[-1][1] if self.rules else frozenset()
            rules = replayed.rules_of(step.producer)
            if not rules <= rules_before:
                self.rules.append((step.place, rules_before | rules))

    def rules_until(self, place: float) -> frozenset[str]:
        return next((rules for at, rules in reversed(self.rules) if at <= place), frozenset())


def _place(placed_reason: tuple[int, Reason]) -> int:
    return placed_reason[0]


def _is_of_bitcasts(reason: Reason) -> bool:
    """Return whether it says only that bitcasts are in between: later steps say more."""
    if reason.rule != _ALL_USERS:
        return False
    from fusionscope.passes.gpu.priority_fusion.rules import AllUsers  # loads the model of a GPU

    return reason.message == AllUsers.only_bitcasts
