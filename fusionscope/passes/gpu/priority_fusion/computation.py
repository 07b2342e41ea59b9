"""The pass in one computation: what its replays have in common.

They form fusions in the same way, and say the same of the producers that are left, whether the
order in which they fuse comes from the rules or from a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fusionscope.gpu.cost.duration import Duration
from fusionscope.gpu.cost.model import ConsumerCosts, PairCost
from fusionscope.gpu.state import GpuState, is_fusible_bitcast
from fusionscope.gpu.tiling.kernel import Tiling
from fusionscope.graph.fusing import (
    add_output,
    create_fusion,
    fuse_instruction,
    merge_fusion,
    merge_outputs,
)
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.passes.gpu.priority_fusion.judge import GpuJudge
from fusionscope.passes.gpu.priority_fusion.rules import AllUsers, NegativeBenefit
from fusionscope.passes.plan import PairDecision, Refused
from fusionscope.passes.rule import NO_OBJECTION, Decision, Rule, RuleBook

_FUSED_WITHIN = frozenset({"conditional", "fusion", "while"})
_STREAM = "_xla_stream_annotation"


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


class Fused(NamedTuple):
    """A consumer by its age, the kind of the fusion that it is in afterwards, and the tiling of
    that, if it is one by Triton.
    """

    consumer: int
    kind: str
    tiling: Tiling | None = None


class Step(NamedTuple):
    """A producer by its age, and the consumers that it was fused into. If one of them
    ``writes_producer``, it is that one's second result for all others.
    """

    producer: int
    consumers: tuple[Fused, ...]
    writes_producer: bool = False


class ComputationRun:
    """The pass in one computation, by the rules of ``book``. ``ages`` are those of the
    instructions.
    """

    def __init__(
        self,
        computation: MutableComputation,
        book: RuleBook[Rule],
        state: GpuState,
        ages: Ages,
        *,
        tells_decisions: bool = True,
    ) -> None:
        self.decisions: list[PairDecision] = []
        self.steps: list[Step] = []
        self._state = state
        self._model = state.model
        self._judge = GpuJudge(book, state)
        self._computation = computation
        self._ages = ages
        self._tells_decisions = tells_decisions
        self._decisions: dict[MutableInstruction, dict[MutableInstruction, Decision]] = {}
        # The part of them that the compiler has asked for too.
        self._decided: dict[MutableInstruction, set[MutableInstruction]] = {}
        # The last priority of each producer, or None if it could not be fused.
        self._scores: dict[MutableInstruction, Duration | None] = {}

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

    def _refusal(self, producer: MutableInstruction) -> Refused | None:
        """Source: CanFuseWithAllNonBitcastUsers."""
        consumers = [user for user in producer.users if not is_fusible_bitcast(user)]
        for index, consumer in enumerate(consumers):
            decision = self._decide(producer, consumer)
            if not decision.allow:
                later = (
                    self._decision(producer, consumer)
                    for consumer in consumers[index + 1 :]
                    if self._tells_decisions
                )
                other_messages = tuple(decision.message for decision in later if not decision.allow)
                return Refused(producer.name, consumer.name, decision, other_messages)
        if consumers:
            return None
        message = AllUsers.only_bitcasts if producer.users else AllUsers.no_users
        return Refused(producer.name, "", AllUsers().refuse(message))

    def _fuse(
        self,
        producer: MutableInstruction,
        consumer: MutableInstruction,
        kind: str,
        *,
        writes_producer: bool = False,
    ) -> MutableInstruction:
        """Return the fusion of that kind. Source: Fuse."""
        fusion = consumer
        if consumer.opcode == "fusion":
            fusion.fusion_kind = kind
        else:
            fusion = create_fusion(consumer, kind)
            self._computation.replace(consumer, fusion)
            self._ages.add(fusion)
        if writes_producer and producer.opcode == "fusion":
            merge_outputs(fusion, producer)
        elif writes_producer:
            add_output(fusion, producer)
            self._computation.remove(producer)
        elif producer.opcode == "fusion":
            merge_fusion(fusion, producer)
        else:
            fuse_instruction(fusion, producer)
        return fusion

    def _tell_refusals(self) -> None:
        """Record the refusals of all producers that were not fused, for each of their consumers.

        A user that is a bitcast is skipped if there are others.
        """
        for producer in self._ages.in_order():
            if producer.opcode in ("constant", "parameter"):
                continue
            consumers = list(producer.users)
            if not is_fusible_bitcast(producer):
                real_consumers = [
                    consumer for consumer in consumers if not is_fusible_bitcast(consumer)
                ]
                consumers = real_consumers or consumers
            self._tell_refusals_of(producer, consumers)

    def _tell_refusals_of(
        self, producer: MutableInstruction, consumers: Sequence[MutableInstruction]
    ) -> None:
        refused = _Unfused(producer)
        for consumer in consumers:
            self.decisions.append(self._considered(refused, consumer))

    def _considered(self, refused: _Unfused, consumer: MutableInstruction) -> PairDecision:
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
            assert refused.refused is not None, f"{producer.name} can be fused, but has no priority"
            decision = refused.refusal()
        return PairDecision(
            computation=self._computation.name,
            producer=producer.name,
            consumer=consumer.name,
            decision=decision,
            cost=cost,
            is_recorded=True,
        )

    def _kind_with(self, constant: MutableInstruction, user: MutableInstruction) -> str:
        """Return the kind of the fusion of a constant and a user of it."""
        return self._model.kind(constant, user).fusion_kind

    def _fuse_constants(self) -> None:
        for constant in self._ages.in_order():
            if constant.opcode != "constant":
                continue
            for user in list(constant.users):
                refusal = self._judge.refuses_constant(constant, user)
                fusion: str | None = None
                before = user.name
                if refusal is None:
                    kind = self._kind_with(constant, user)
                    fused = Fused(self._ages.of(user), kind)
                    self.steps.append(Step(self._ages.of(constant), (fused,)))
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


@dataclass(slots=True)
class _Unfused:
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


class Ages:
    """The ages of the instructions of a computation: their ``ids``, or the order of the text."""

    def __init__(self, computation: MutableComputation, ids: Mapping[str, int]) -> None:
        self._next = max(ids.values(), default=0) + 1
        self._ids: dict[MutableInstruction, int] = {}
        for instruction in computation.instructions:
            if instruction.name in ids:
                self._ids[instruction] = ids[instruction.name]
            else:
                self.add(instruction)

    def add(self, instruction: MutableInstruction) -> None:
        """Record that ``instruction`` is newer than all others."""
        self._ids[instruction] = self._next
        self._next += 1

    def of(self, instruction: MutableInstruction) -> int:
        return self._ids[instruction]

    def in_order(self) -> list[MutableInstruction]:
        """Return the remaining instructions, the oldest first."""
        return sorted(
            (instruction for instruction in self._ids if instruction.parent is not None),
            key=self._ids.__getitem__,
        )
