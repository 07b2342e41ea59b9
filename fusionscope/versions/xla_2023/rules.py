"""The rules of XLA of early 2023 that differ from those of October 2024.

Checked against TensorFlow 2.12, whose XLA is that of February 2023. Its sources are those of
January 10, 2023, which arXiv 2301.13062 is nearest to, in all but horizontal loop fusion.

Source of all: xla/service/gpu/gpu_fusible.cc of February 2023, where not said otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fusionscope.gpu.cost.model import Estimate
from fusionscope.gpu.kinds import is_input_fusible
from fusionscope.gpu.reductions import has_reduction_emitter, reduced_dimensions
from fusionscope.gpu.state import GpuState
from fusionscope.graph.aliasing import InPlace
from fusionscope.graph.layouts import same_elements_in_memory
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import (
    is_effective_scalar,
    is_elementwise,
    is_fusible,
    same_but_for_type,
)
from fusionscope.passes.gpu.multi_output_fusion.rules import (
    Connected,
    Heroes,
    LoopShape,
    MultiOutputState,
    OnlyUser,
    OutputChoice,
    OutputCost,
    OutputCycle,
    OutputPair,
    OutputPairRule,
    OutputParameterBudget,
    OutputProducer,
    OutputRoot,
    ScalarParent,
    SeveralUpdates,
    SiblingCandidate,
    SiblingOrder,
)
from fusionscope.passes.gpu.priority_fusion.rules import (
    ParameterBudget,
    ReductionBudget,
    SharedMemoryBudget,
)
from fusionscope.passes.gpu_legacy.fusible import (
    NotFusibleConsumer,
    NotLoopProducer,
    SeveralOutputs,
    UnfusedConstant,
    is_universally_loop_fusible,
)
from fusionscope.passes.gpu_legacy.fusion_merger.rules import (
    AllMerge,
    MergedCode,
    MergedSlower,
    MergeIntoBitcast,
    NotLoopFusion,
    NoUsers,
    Uncoalesced,
)
from fusionscope.passes.gpu_legacy.horizontal_fusion.rules import (
    HORIZONTAL_LOOP,
    Batch,
    InputCandidate,
    alike,
    count_instructions,
    have_one_shape,
)
from fusionscope.passes.gpu_legacy.instruction_fusion.rules import (
    DUPLICATING,
    Coalescing,
    CodeDuplication,
    ExpensiveReuse,
    HeavyComputation,
    ProducerFusion,
)
from fusionscope.passes.gpu_legacy.multi_output_fusion.rules import (
    BranchingOutputCodeSize,
)
from fusionscope.passes.inplace import (
    DynamicSliceIndex,
    DynamicSliceSafe,
    ExtraOperand,
    MultipleShaping,
    SliceIndex,
    SlicePair,
    SliceSafe,
    updates_in,
)
from fusionscope.passes.pair_rules import Eligible, ExpensiveDuplicate, GloballyUnfusible, Root
from fusionscope.passes.rule import Decision, Rule, RuleBook
from fusionscope.passes.state import FusionPair
from fusionscope.versions.xla_2023.cost import estimate
from fusionscope.versions.xla_2023.emitters import find_non_trivial_hero

_MOST_BUFFERS = 64


def _is_loop_producer(instruction: MutableInstruction, gpu: GpuState) -> bool:
    """Source: IsLoopFusibleAsProducer."""
    if not is_fusible(instruction):
        return False
    if instruction.opcode in ("constant", "iota"):
        return True
    if instruction.opcode == "reduce":
        return not (instruction.shape.is_tuple or has_reduction_emitter(instruction, gpu.device))
    return _is_loop(instruction, gpu)


def _is_loop(instruction: MutableInstruction, gpu: GpuState) -> bool:
    """Source: IsUniversallyLoopFusible."""
    if instruction.opcode == "copy" and gpu.emitters.tiled_transpose(instruction):
        return False
    return is_universally_loop_fusible(instruction)


class NotLoopProducer2023(NotLoopProducer):
    """A reduction with an emitter ends a kernel, and so does a tiled copy."""

    __slots__ = ()

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        producer = pair.producer
        if _is_loop_producer(producer, state) or (
            state.emitters.tiled_transpose(producer)
            and find_non_trivial_hero(pair.consumer) is producer
        ):
            return None
        return self.refuse(opcode=producer.opcode)


class NotFusibleConsumer2023(NotFusibleConsumer):
    """A bitcast counts as a loop too."""

    __slots__ = ()

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        consumer = pair.consumer
        if is_input_fusible(consumer, state.device, state.emitters) or (
            is_fusible(consumer) and (consumer.opcode == "reduce" or _is_loop(consumer, state))
        ):
            return None
        return self.refuse(opcode=consumer.opcode)


class MultipleShaping2023(MultipleShaping):
    """The other rules about in-place updates: a slice, alone, of the updated operand. Source:
    xla/service/instruction_fusion.cc, ShouldFuseInPlaceOp.
    """

    __slots__ = ()
    message: ClassVar = (
        "Consumer is not a dus or the producer fusion has multiple non-elementwise ops, bailing."
    )

    def check(self, pair: FusionPair, update: InPlace) -> Decision | None:
        producer, consumer = pair.producer, pair.consumer
        reads = consumer.operands[update.slot] in producer.operands
        if is_elementwise(producer) or not reads:
            return self.allow()
        updates = updates_in(consumer)
        if producer.opcode == "fusion" or len(updates) != 1:
            return self.refuse(found=len(updates))
        if producer.shape != updates[0].operands[1].shape:
            return self.refuse(slice=str(producer.shape))
        rules: dict[str, tuple[SlicePair, ...]] = {
            "slice": (SliceIndex(), SliceSafe()),
            "dynamic-slice": (DynamicSliceIndex(), DynamicSliceSafe()),
        }
        for rule in rules.get(producer.opcode, ()):
            decision = rule.check_slice(pair, producer, updates[0])
            if decision is not None:
                return decision
        return self.refuse("unrecognized inplace update non-elementwise output pair")


_PAIR_RULES: tuple[Rule, ...] = (
    NotLoopProducer2023(),
    NotFusibleConsumer2023(),
    SeveralOutputs(),
    UnfusedConstant(),
    ExtraOperand(),
    MultipleShaping2023(),
)


class MergedSlower2023(MergedSlower):
    """By the cost model of that time."""

    __slots__ = ()

    def estimate(self, producer: MutableInstruction, state: GpuState) -> Estimate:
        return estimate(state.model, producer, producer.users)


class ScalarParent2023(ScalarParent):
    """Only a constant is not worth duplicating."""

    __slots__ = ()

    def check(self, instruction: MutableInstruction, state: MultiOutputState) -> Decision | None:
        if instruction.opcode != "constant":
            return None
        shape = instruction.shape
        return self.refuse(shape=str(shape)) if is_effective_scalar(shape) else None


class OutputProducer2023(OutputProducer):
    """Refuses reductions with an emitter, and tiled copies."""

    __slots__ = ()

    def is_loop_fusible(self, instruction: MutableInstruction, gpu: GpuState) -> bool:
        return _is_loop_producer(instruction, gpu)


class Heroes2023(Heroes):
    """Reductions must have equal shapes and dimensions, and tiled transposes equal shapes."""

    __slots__ = ()

    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        first, second = state.hero(pair.consumer), state.hero(pair.producer)
        gpu = state.gpu
        reductions = [has_reduction_emitter(hero, gpu.device) for hero in (first, second)]
        transposes = [gpu.emitters.tiled_transpose(hero) is not None for hero in (first, second)]
        if all(reductions) and not _reduce_alike(first, second):
            return self.refuse("tiled reductions with different shapes")
        if all(transposes) and not (
            same_but_for_type(first.shape, second.shape)
            and same_but_for_type(first.operands[0].shape, second.operands[0].shape)
        ):
            return self.refuse("tiled transposes with different shapes")
        if (transposes[0] and reductions[1]) or (reductions[0] and transposes[1]):
            return self.refuse("MOF-fusion of a transpose and a reduction")
        return None

    looks_at = OutputPairRule.looks_at


def _reduce_alike(first: MutableInstruction, second: MutableInstruction) -> bool:
    """Source: IsFusedReductionOutputConsistent."""
    pairs = [(first.shape, second.shape)]
    pairs += [(first.operands[slot].shape, second.operands[slot].shape) for slot in (0, 1)]
    return all(same_but_for_type(*pair) for pair in pairs) and (
        reduced_dimensions(first) == reduced_dimensions(second)
    )


class LoopShape2023(LoopShape):
    """Plain loops must have the same shape, not only the same memory."""

    __slots__ = ()

    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        heroes = [state.hero(end) for end in (pair.consumer, pair.producer)]
        (first, is_special), (second, is_other_special) = (
            _loop_of(heroe, state) for heroe in heroes
        )
        if same_but_for_type(first.shape, second.shape):
            return None
        is_reshapable = (is_special or is_other_special) and not (
            first.shape.is_tuple or second.shape.is_tuple
        )
        if is_reshapable and same_elements_in_memory(first.shape, second.shape):
            return None
        return self.refuse(consumer=str(first.shape), producer=str(second.shape))

    looks_at = OutputPairRule.looks_at


def _loop_of(hero: MutableInstruction, state: MultiOutputState) -> tuple[MutableInstruction, bool]:
    """Return the instruction whose shape is looped over, and whether as reduction or transpose."""
    gpu = state.gpu
    if has_reduction_emitter(hero, gpu.device) or gpu.emitters.tiled_transpose(hero) is not None:
        return find_non_trivial_hero(hero).operands[0], True
    return hero, False


class OutputCost2023(OutputCost):
    """By the cost model of that time."""

    __slots__ = ()

    def estimate(self, pair: OutputPair, state: MultiOutputState) -> Estimate:
        model = state.gpu.model
        return estimate(model, pair.producer, (pair.consumer,), writes_producer=True)


# Operations of a fusion below which so many of them may lie side by side.
_LARGEST_BATCHES = ((8, 32), (16, 16), (32, 8), (64, 4))


class Batch2023(Batch):
    """Of longer fusions fewer lie side by side, and the first one does not count."""

    __slots__ = ()

    def take(self, candidates: Sequence[MutableInstruction], *, has_slices: bool) -> int:
        first, buffers = candidates[0], 0
        limit = self.fusions if has_slices else self._most_alike(first)
        for count, candidate in enumerate(candidates[1:], 1):
            first_likeness, likeness = alike(first), alike(candidate)
            if first_likeness[:3] != likeness[:3] or not (
                has_slices or have_one_shape(first, candidate)
            ):
                return count
            buffers += len(candidate.operands) + likeness.outputs
            if count >= limit or 8 * buffers >= self.parameter_bytes:
                return count
        return len(candidates)

    def _most_alike(self, first: MutableInstruction) -> int:
        if first.opcode != "fusion":
            return self.operations
        length = count_instructions(first)
        return next((most for below, most in _LARGEST_BATCHES if length < below), 2)


_RULES: tuple[Rule, ...] = (
    Eligible(),
    GloballyUnfusible(),
    ProducerFusion(),
    ExpensiveReuse(),
    Coalescing(),
    *_PAIR_RULES,
    HeavyComputation(),
    Root(),
    ExpensiveDuplicate(),
    SharedMemoryBudget(),
    ReductionBudget(),
    ParameterBudget(_MOST_BUFFERS),
    CodeDuplication(),
)
GPU_FUSION_2023: RuleBook[Rule] = RuleBook("gpu-fusion-2023", "fusion", "gpu", _RULES)
GPU_DUPLICATION_2023: RuleBook[Rule] = RuleBook("gpu-duplication-2023", DUPLICATING, "gpu", _RULES)
FUSION_MERGER_2023: RuleBook[Rule] = RuleBook(
    "fusion-merger-2023",
    "fusion_merger",
    "gpu",
    (
        NoUsers(),
        NotLoopFusion(),
        MergeIntoBitcast(),
        *_PAIR_RULES,
        Uncoalesced(),
        SharedMemoryBudget(),
        ReductionBudget(),
        ParameterBudget(_MOST_BUFFERS),
        MergedCode(),
        MergedSlower2023(),
        AllMerge(),
    ),
)
MULTI_OUTPUT_2023: RuleBook[Rule] = RuleBook(
    "multi-output-2023",
    "multi_output_fusion",
    "gpu",
    (
        ScalarParent2023(),
        OutputRoot(),
        SiblingCandidate(),
        SiblingOrder(),
        OutputProducer2023(),
        OnlyUser(),
        Connected(),
        Heroes2023(),
        LoopShape2023(),
        SeveralUpdates(),
        OutputCycle(),
        SharedMemoryBudget(),
        ReductionBudget(),
        OutputParameterBudget(_MOST_BUFFERS),
        BranchingOutputCodeSize(),
        OutputCost2023(),
        OutputChoice(),
    ),
)
HORIZONTAL_LOOP_2023: RuleBook[Rule] = RuleBook(
    "horizontal-loop-2023",
    "gpu_horizontal_loop_fusion",
    "gpu",
    tuple(Batch2023() if isinstance(each, Batch) else each for each in HORIZONTAL_LOOP),
)
HORIZONTAL_INPUT_2023: RuleBook[Rule] = RuleBook(
    "horizontal-input-2023",
    "gpu_horizontal_input_fusion",
    "gpu",
    (
        InputCandidate(),
        Heroes2023(),
        LoopShape2023(),
        SharedMemoryBudget(),
        ReductionBudget(),
        OutputParameterBudget(_MOST_BUFFERS),
    ),
)
