"""Asks the rules of priority fusion about pairs."""

from __future__ import annotations

from fusionscope.gpu.emitters import is_generic_triton
from fusionscope.gpu.state import GpuState, is_fusible_bitcast
from fusionscope.gpu.tiling.kernel import Tiling
from fusionscope.graph.mutable import MutableInstruction, slots_of
from fusionscope.hlo.search import reachable
from fusionscope.passes.gpu.priority_fusion.rules import (
    GpuPairRule,
    RulePhase,
    TritonHeroless,
    TritonTiling,
)
from fusionscope.passes.inplace import InPlaceRule, check_in_place
from fusionscope.passes.overrides import Allowed, Forbidden
from fusionscope.passes.rule import NO_OBJECTION, Decision, Rule, RuleBook, first_decision
from fusionscope.passes.state import FusionPair


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
        self._output_checks = [
            rule.check
            for rule in rules
            if RulePhase.TRITON in rule.stages and not isinstance(rule, TritonTiling)
        ]
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

    def tiling_with_output(
        self, producer: MutableInstruction, consumer: MutableInstruction
    ) -> Tiling | None:
        """Return the tiling with which Triton computes the two as one kernel that also writes the
        producer, or None if it cannot.

        Source: CanFuseTriton, OperandReachableFromProducer.
        """
        state, pair = self._state, _pair(producer, consumer)
        operands = (operand for operand in consumer.operands if operand is not producer)
        if (
            is_fusible_bitcast(consumer)
            or not state.facts(consumer).is_fusible
            or first_decision(check(pair, state) for check in self._output_checks)
            or first_decision(rule.check(pair) for rule in self._forbidden)
            or state.find_tiling_problem(producer, consumer, writes_producer=True)
            or producer in reachable(operands, lambda instruction: instruction.operands)
        ):
            return None
        identity = state.triton.identity(producer, consumer, writes_producer=True)
        return state.triton.known_tiling(identity)

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
