"""The rules of instruction fusion for GPUs, in the compiler's order.

The pass runs twice: the first run duplicates nothing, the second duplicates cheap operations.
Source of all: xla/service/gpu/transforms/instruction_fusion.cc of October 2024 (now gone), unless
stated otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from fusionscope.gpu.cost.model import is_input_reduction
from fusionscope.gpu.reductions import has_reduction_emitter
from fusionscope.gpu.state import GpuState, is_fusion
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.search import reachable
from fusionscope.hlo.window import read_window
from fusionscope.passes import expense
from fusionscope.passes.gpu.multi_output_fusion.rules import is_transposing
from fusionscope.passes.gpu.priority_fusion.rules import (
    GpuPairRule,
    ParameterBudget,
    ReductionBudget,
    SharedMemoryBudget,
)
from fusionscope.passes.gpu_legacy.fusible import PRODUCER_CONSUMER_RULES
from fusionscope.passes.indexing import emitted_too_often
from fusionscope.passes.pair_rules import (
    Eligible,
    ExpensiveDuplicate,
    GloballyUnfusible,
    PairRule,
    Root,
)
from fusionscope.passes.rule import Decision, Rule, RuleBook
from fusionscope.passes.state import FusionPair, FusionState

# The second run of the pass, for which files use the same name as for the first.
DUPLICATING = "fusion-duplicating"

_CHEAP_IF_SHORT = frozenset({"divide", "exponential", "rsqrt", "sqrt"})


def is_expensive(instruction: MutableInstruction) -> bool:
    """Return whether the pass avoids computing an operation twice. Source:
    GpuInstructionFusion::IsExpensive.
    """
    if instruction.opcode in _CHEAP_IF_SHORT and instruction.shape.element_type in ("f16", "f32"):
        return False
    return expense.is_expensive(instruction)


class ProducerFusion(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-if-producer-fusion"
    message: ClassVar = "the producer is a fusion"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        return self.refuse() if is_fusion(pair.producer) else None


class CustomConsumer(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-if-custom"
    message: ClassVar = "the consumer is a custom fusion"
    is_legality: ClassVar = True

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        return self.refuse() if pair.consumer.is_custom_fusion else None


class ExpensiveReuse(PairRule):
    __slots__ = ()
    id: ClassVar = "leg-if-expensive-reuse"
    message: ClassVar = "the producer is expensive, and the consumer reuses inputs"

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        producer = pair.producer
        if state.is_expensive(producer) and producer in state.reused_operands(pair.consumer):
            return self.refuse(opcode=producer.opcode)
        return None


class Coalescing(GpuPairRule):
    __slots__ = ()
    id: ClassVar = "leg-if-coalescing"
    message: ClassVar = "fusing the producer would break read coalescing"

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        reduces = is_input_reduction(pair.consumer, state.device, state.emitters)
        return self.refuse() if reduces and is_transposing(pair.producer) else None


@dataclass(frozen=True, slots=True)
class HeavyComputation(GpuPairRule):
    id: ClassVar = "leg-if-heavy"
    message: ClassVar = "the fusion would create a heavy computation"

    inputs: int = 10

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        inputs = _inputs_per_output(pair.producer, state)
        if inputs > self.inputs and any(map(_reads_repeatedly, _readers(pair))):
            return self.refuse(inputs=inputs, limit=self.inputs)
        return None


def _inputs_per_output(instruction: MutableInstruction, state: GpuState) -> int:
    """Source: IsExpensiveToRepeat."""
    if instruction.opcode == "reduce" and not has_reduction_emitter(instruction, state.device):
        elements = instruction.shape.element_count
        return instruction.operands[0].shape.element_count // elements if elements else 0
    if instruction.opcode == "reduce-window":
        window = read_window(instruction.attributes.get("window", "{}"))
        return math.prod(dimension.size for dimension in window)
    return 0


def _readers(pair: FusionPair) -> Iterator[MutableInstruction]:
    """Yield the consumer, or the instructions in it that read the producer."""
    consumer = pair.consumer
    if not is_fusion(consumer):
        return iter((consumer,))
    parameter = consumer.fused.parameters[consumer.operands.index(pair.producer)]
    return reachable([parameter], lambda value: value.users)


def _reads_repeatedly(instruction: MutableInstruction) -> bool:
    """Source: IfFusedReadsElementsMultipleTimes."""
    if instruction.opcode in ("broadcast", "gather"):
        return instruction.shape.element_count > instruction.operands[0].shape.element_count
    if instruction.opcode == "reduce-window":
        window = read_window(instruction.attributes.get("window", "{}"))
        return any(dimension.size > dimension.stride for dimension in window)
    return False


@dataclass(frozen=True, slots=True)
class CodeDuplication(PairRule):
    id: ClassVar = "leg-code-dup"
    message: ClassVar = "the fusion would result in an overly large code duplication"

    limit: int = 15

    def check(self, pair: FusionPair, state: FusionState) -> Decision | None:
        producer = pair.producer
        if not is_fusion(pair.consumer) or producer.opcode == "broadcast":
            return None
        emitted = state.evaluation(pair.consumer).emitted(producer)
        excess = emitted_too_often(producer, emitted, self.limit)
        return self.refuse(None, **excess) if excess else None


_RULES: tuple[Rule, ...] = (
    Eligible(),
    GloballyUnfusible(),
    ProducerFusion(),
    CustomConsumer(),
    ExpensiveReuse(),
    Coalescing(),
    *PRODUCER_CONSUMER_RULES,
    HeavyComputation(),
    Root(),
    ExpensiveDuplicate(),
    SharedMemoryBudget(),
    ReductionBudget(),
    ParameterBudget(),
    CodeDuplication(),
)

GPU_INSTRUCTION_FUSION: RuleBook[Rule] = RuleBook("legacy-gpu-fusion", "fusion", "gpu", _RULES)
GPU_DUPLICATING_FUSION: RuleBook[Rule] = RuleBook(
    "legacy-gpu-duplication", DUPLICATING, "gpu", _RULES
)
