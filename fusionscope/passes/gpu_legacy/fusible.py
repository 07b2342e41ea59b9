"""Checks which instructions a loop emitter can compute, and which fit into one kernel.

Source of all: xla/service/gpu/gpu_fusible.cc of October 2024.
"""

from __future__ import annotations

from typing import ClassVar

from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.cost.model import is_input_reduction
from fusionscope.gpu.emitters import is_intermediate
from fusionscope.gpu.kinds import is_input_fusible, is_input_transpose
from fusionscope.gpu.reductions import has_reduction_emitter, is_race_free, normal_reduction
from fusionscope.gpu.state import GpuState, is_fusion
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_effective_scalar, is_elementwise, is_fusible
from fusionscope.passes.gpu.priority_fusion.rules import GpuPairRule, Scatter
from fusionscope.passes.inplace import IN_PLACE_RULES
from fusionscope.passes.rule import Decision
from fusionscope.passes.state import FusionPair

_LOOP_FUSIBLE = frozenset(
    """bitcast broadcast concatenate copy dynamic-slice dynamic-update-slice gather pad
    reduce-window reshape reverse slice transpose""".split()
)


def is_loop_fusible_producer(instruction: MutableInstruction) -> bool:
    """Source: IsLoopFusibleAsProducer."""
    if not is_fusible(instruction):
        return False
    if instruction.opcode in ("constant", "iota"):
        return True
    if instruction.opcode == "reduce":
        return not instruction.shape.is_tuple
    return is_universally_loop_fusible(instruction)


def is_loop_fusible_consumer(instruction: MutableInstruction, gpu: GpuState) -> bool:
    """Source: IsLoopFusibleAsConsumer."""
    if not is_fusible(instruction) or instruction.opcode == "bitcast":
        return False
    if instruction.opcode == "reduce":
        return True
    if (
        is_fusion(instruction)
        and instruction.fusion_kind == "kInput"
        and not is_input_fusible(instruction, gpu.device, gpu.emitters)
    ):
        return True
    return is_universally_loop_fusible(instruction)


def is_universally_loop_fusible(instruction: MutableInstruction) -> bool:
    if is_elementwise(instruction) and instruction.operands:
        return True
    return instruction.opcode in _LOOP_FUSIBLE or instruction.is_loop_fusion


def find_clash(one: MutableInstruction, other: MutableInstruction, gpu: GpuState) -> str | None:
    """Return why kernels with these heroes cannot be combined, in the compiler's words, or None if
    they can. Source: FusionHeroesAreCompatible.
    """
    reductions = [has_reduction_emitter(end, gpu.device) for end in (one, other)]
    transposes = [gpu.emitters.tiled_transpose(end) for end in (one, other)]
    first, second = transposes
    if all(reductions) and normal_reduction(one) != normal_reduction(other):
        return "tiled reductions with different shapes"
    if first is not None and second is not None and not gpu.emitters.are_alike(first, second):
        return "tiled transposes with different shapes"
    if (first is not None and reductions[1]) or (second is not None and reductions[0]):
        return "MOF-fusion of a transpose and a reduction"
    fusions = [_fusion_around(end) for end in (one, other)]
    if fusions[0] is None or fusions[1] is None:
        return None
    for transpose, producer, consumer in (
        (first, fusions[0], fusions[1]),
        (second, fusions[1], fusions[0]),
    ):
        if transpose is not None and producer in consumer.operands:
            slot = consumer.operands.index(producer)
            if not _leads_straight_to_root(consumer.fused.parameters[slot]):
                return "tiled transpose would become untiled"
            return None
    return None


def _fusion_around(hero: MutableInstruction) -> MutableInstruction | None:
    computation = hero.computation
    return next(iter(computation.callers), None) if computation.is_fused else None


def _leads_straight_to_root(parameter: MutableInstruction) -> bool:
    """Return whether all instructions from a parameter to the root are elementwise or trivial, and
    all but the last have one user.
    """
    if len(parameter.users) != 1:
        return False
    current = next(iter(parameter.users))
    while current.users:
        if not is_intermediate(current, 1):
            return False
        current = next(iter(current.users))
    return True


class NotLoopProducer(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-pc-producer"
    message: ClassVar = "the producer is not loop-fusible"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        producer = pair.producer
        if is_loop_fusible_producer(producer) or is_input_transpose(producer, state.emitters):
            return None
        return self.refuse(opcode=producer.opcode)


class ReductionEpilogue(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-pc-reduction-epilogue"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        producer, consumer = pair.producer, pair.consumer
        if not is_input_reduction(producer, state.device, state.emitters):
            return None
        hero = producer
        if is_fusion(producer):
            hero = state.emitters.find_hero(FusionBody(producer), producer.fused.root)
        if hero.opcode == "reduce" and not is_race_free(hero, state.device):
            return self.refuse("Reduction output fusion only works for race free reductions")
        inside = consumer.fused.instructions if is_fusion(consumer) else (consumer,)
        for instruction in inside:
            if not is_intermediate(instruction, 1) and (
                instruction.opcode != "parameter" or not is_fusion(consumer)
            ):
                message = "Reductions from/to continuous dims epilogue not fusible"
                return self.refuse(message, by=instruction.name)
        if len(producer.users) > 1:
            message = "reduction output fusion only works for single user"
            return self.refuse(message, users=len(producer.users))
        return None


class NotFusibleConsumer(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-pc-consumer"
    message: ClassVar = "the consumer is not input-fusible and not loop-fusible"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        consumer = pair.consumer
        if is_input_fusible(consumer, state.device, state.emitters) or is_loop_fusible_consumer(
            consumer, state
        ):
            return None
        return self.refuse(opcode=consumer.opcode)


class SeveralOutputs(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-pc-mof"
    message: ClassVar = "the producer is not fusible as it is a multi-output fusion"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        return self.refuse() if pair.producer.is_multi_output else None


class UnfusedConstant(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-pc-constant"
    message: ClassVar = "not fusing constant"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        producer = pair.producer
        if producer.opcode == "constant" and not (
            is_effective_scalar(producer.shape) and is_fusion(pair.consumer)
        ):
            return self.refuse(elements=producer.shape.element_count)
        return None


# The common rules on producers and consumers, in the compiler's order.
PRODUCER_CONSUMER_RULES = (
    NotLoopProducer(),
    ReductionEpilogue(),
    Scatter(),
    NotFusibleConsumer(),
    SeveralOutputs(),
    UnfusedConstant(),
    *IN_PLACE_RULES,
)
