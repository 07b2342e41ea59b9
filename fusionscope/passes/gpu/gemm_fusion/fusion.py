"""Replays the pass that forms Triton fusions around matrix multiplications.

Versions of the compiler differ in how they choose the contents of such a fusion. Source:
xla/backends/gpu/transforms/gemm_fusion.cc.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    replace_and_prune,
)
from fusionscope.graph.visiting import visit
from fusionscope.hlo.shape import Shape
from fusionscope.passes.causes import DotSeveralUsers
from fusionscope.passes.gpu.gemm_fusion.rules import VIEWS, DotRule, GemmState
from fusionscope.passes.gpu.priority_fusion.computation import fusible_computations
from fusionscope.passes.plan import FusionPlan, PairDecision
from fusionscope.passes.rule import NO_OBJECTION, Decision, Rule, RuleBook, first_decision

_KIND = "__triton_gemm"


@dataclass(frozen=True, slots=True)
class Asked:
    """The decision on ``neighbour``, by its name: an operand of the fusion, or else a user."""

    neighbour: str
    decision: Decision
    is_operand: bool


@dataclass(frozen=True, slots=True)
class Grown:
    """A fusion around a dot, which nothing reads yet. ``output`` is its final result, ``asked``
    holds the decisions on its neighbours, in order.
    """

    fusion: MutableInstruction
    output: MutableInstruction
    asked: tuple[Asked, ...]


@dataclass(slots=True)
class GemmFusion(ABC):
    """The pass over ``graph``, with the rules of ``book``."""

    graph: MutableModule
    book: RuleBook[Rule]
    state: GemmState
    _decisions: list[PairDecision] = field(default_factory=list)

    @abstractmethod
    def _grow(self, dot: MutableInstruction, name: str) -> Grown | Decision:
        """Return the fusion of that name, or why there is none."""

    def run(self) -> FusionPlan:
        for computation in fusible_computations(self.graph):
            visit(computation, self._run_on, set())
        return FusionPlan(self.book.pass_name, tuple(self._decisions), self.graph)

    def _run_on(self, dot: MutableInstruction) -> None:
        """Source: HandleDot."""
        if dot.opcode != "dot" or dot.parent is None:  # or removed in the meantime
            return
        computation = dot.computation
        rules = (rule for rule in self.book if isinstance(rule, DotRule))
        refusal = first_decision(rule.check(dot, self.state) for rule in rules)
        if refusal is not None:
            self._decide(computation, dot.name, dot.name, refusal)
            return
        grown = self._grow(dot, f"gemm_fusion_{dot.name}")
        if isinstance(grown, Decision):
            self._decide(computation, dot.name, dot.name, grown)
            return
        fusion, output = grown.fusion, grown.output
        self._decide(computation, dot.name, dot.name, NO_OBJECTION, fusion)
        for question in (*grown.asked, *_left_to_others(output)):
            near = question.neighbour
            ends = (near, fusion.name) if question.is_operand else (fusion.name, near)
            taker = fusion if question.decision.allow else None
            self._decide(computation, *ends, question.decision, taker)
        result = fusion
        if output.shape != fusion.shape:
            result = computation.make("bitcast", output.shape, [fusion])
        replace_and_prune(output, result)

    def _decide(
        self,
        computation: MutableComputation,
        producer: str,
        consumer: str,
        decision: Decision,
        fusion: MutableInstruction | None = None,
    ) -> None:
        name = fusion.name if fusion is not None else None
        self._decisions.append(PairDecision(computation.name, producer, consumer, decision, name))


def _left_to_others(output: MutableInstruction) -> list[Asked]:
    """What reads the result of a fusion, or a view of it, that several operations read: none of
    them was asked."""
    while len(output.users) == 1 and (user := next(iter(output.users))).opcode in VIEWS:
        output = user
    if len(output.users) < 2:
        return []
    decision = DotSeveralUsers().refuse_for(output.users)
    return [Asked(user.name, decision, is_operand=False) for user in output.users]


def add_gemm_fusion(
    dot: MutableInstruction,
    name: str,
    fused: MutableComputation,
    inputs: list[MutableInstruction],
) -> MutableInstruction:
    """Return a fusion of that name in the dot's computation, with ``inputs`` as operands."""
    shape = fused.root.shape
    graph = dot.computation.module
    fusion = MutableInstruction(graph.instruction_name(name), "fusion", shape, inputs)
    fusion.fusion_kind, fusion.backend_kind = "kCustom", _KIND
    fusion.called = [fused]
    return dot.computation.add(fusion)


def copy_with(
    computation: MutableComputation,
    old: MutableInstruction,
    shape: Shape,
    operands: list[MutableInstruction],
) -> MutableInstruction:
    """Return a copy of ``old`` with another shape and other operands."""
    name = computation.module.instruction_name(old.name)
    copy = MutableInstruction(name, old.opcode, shape, operands, old.attributes_text, old.inside)
    copy.origin = old.origin
    return copy
