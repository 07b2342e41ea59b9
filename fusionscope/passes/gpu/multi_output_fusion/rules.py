"""The rules for kernels with several outputs, formed of siblings, which share an operand, or of a
producer with other users and one of its consumers.

Source of all: xla/backends/gpu/transforms/multi_output_fusion.cc, xla/service/gpu/gpu_fusible.cc.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, NamedTuple, Protocol

from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.cost.duration import microseconds
from fusionscope.gpu.cost.model import Estimate, is_input_reduction
from fusionscope.gpu.kinds import is_input_transpose
from fusionscope.gpu.reductions import (
    Reduction,
    has_reduction_emitter,
    is_reduction_hero,
    normal_reduction,
)
from fusionscope.gpu.state import GpuState, is_fusible_bitcast, is_fusion
from fusionscope.gpu.transposes import TiledTranspose
from fusionscope.graph.aliasing import in_place_operands
from fusionscope.graph.layouts import same_elements_in_memory, transpose_is_bitcast
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import (
    is_effective_scalar,
    is_elementwise,
    is_fusible,
    slice_ranges,
)
from fusionscope.hlo.search import unfold
from fusionscope.hlo.shape import Shape
from fusionscope.passes.gpu.priority_fusion.rules import (
    ParameterBudget,
    ReductionBudget,
    SharedMemoryBudget,
)
from fusionscope.passes.rule import Decision, Rule, RuleBook
from fusionscope.passes.state import FusionPair

_LOOP_FUSIBLE = frozenset(
    """broadcast concatenate dynamic-slice gather pad reduce-window reshape reverse slice
    transpose""".split()
)


class Place(Enum):
    """The role of an instruction that a rule checks separately: the shared operand of siblings, a
    sibling, a producer, or a consumer that would also write its producer's result.
    """

    PARENT = "parent"
    SIBLING = "sibling"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Relation(Enum):
    """The relation of two instructions that would become one kernel."""

    SIBLINGS = "siblings"
    PRODUCER_AND_CONSUMER = "producer and consumer"


@dataclass(frozen=True, slots=True)
class OutputPair(FusionPair):
    """A possible fusion of ``producer`` into ``consumer``, with ``producer`` as an output. For
    siblings, which both read ``parent``, ``consumer`` absorbs the other one and reads ``parent`` in
    ``slot``. ``parent`` is None if ``consumer`` reads ``producer`` itself.
    """

    parent: MutableInstruction | None

    @property
    def relation(self) -> Relation:
        return Relation.SIBLINGS if self.parent is not None else Relation.PRODUCER_AND_CONSUMER


class Reaches(Protocol):
    def __call__(self, start: MutableInstruction, end: MutableInstruction, /) -> bool:
        """Return whether ``end`` is or depends on ``start``."""


class Emitted(NamedTuple):
    """How the hero is emitted: as ``reduction`` or as ``tiled`` transpose by an emitter of its own,
    or in a plain loop. ``is_nested`` marks a transpose in a plain loop."""

    reduction: Reduction | None
    tiled: TiledTranspose | None
    is_nested: bool


class HeroFacts(NamedTuple):
    """``looped_over`` is the shape that the kernel loops over."""

    emitted: Emitted
    looped_over: Shape


class MultiOutputState:
    """A run over one computation."""

    def __init__(self, gpu: GpuState, reaches: Reaches) -> None:
        self.gpu = gpu
        self.reaches = reaches
        self._heroes: dict[MutableInstruction, MutableInstruction] = {}
        self._facts: dict[MutableInstruction, HeroFacts] = {}

    def hero(self, instruction: MutableInstruction) -> MutableInstruction:
        """Return the instruction that decides how the kernel of ``instruction`` loops: of several
        outputs, the first reduction or tiled transpose. Source: GetRealHeroForMultiOutputFusion.
        """
        real_hero = self._heroes.get(instruction)
        if real_hero is None:
            real_hero = self._heroes[instruction] = find_real_hero(instruction, self.gpu)
        return real_hero

    def hero_facts(self, instruction: MutableInstruction) -> HeroFacts:
        """Return the facts about the hero, cached for all pairs."""
        facts = self._facts.get(instruction)
        if facts is None:
            hero = self.hero(instruction)
            is_reduction = has_reduction_emitter(hero, self.gpu.device)
            tiled = self.gpu.emitters.tiled_transpose(hero)
            emitted = Emitted(
                reduction=normal_reduction(hero) if is_reduction else None,
                tiled=tiled,
                is_nested=hero.opcode == "transpose" and tiled is None,
            )
            reads = hero.operands[0] if is_reduction or tiled is not None else hero
            facts = self._facts[instruction] = HeroFacts(emitted, reads.shape)
        return facts

    def changed(self, instruction: MutableInstruction) -> None:
        """Discard what is known of ``instruction``, which has changed."""
        self._heroes.pop(instruction, None)
        self._facts.pop(instruction, None)
        self.gpu.changed(instruction, has_outputs=True)


def outputs_of(instruction: MutableInstruction) -> list[MutableInstruction]:
    """Return the results of an instruction: several for a fusion with several outputs.

    Source: GetOutputsOfFusible.
    """
    if not is_fusion(instruction):
        return [instruction]
    root = instruction.fused.root
    return list(root.operands) if instruction.is_multi_output else [root]


def find_real_hero(instruction: MutableInstruction, gpu: GpuState) -> MutableInstruction:
    """Source: GetRealHeroForMultiOutputFusion."""
    if not is_fusion(instruction):
        return instruction
    body, outputs = FusionBody(instruction), outputs_of(instruction)
    if not (gpu.emitters.looks_above_roots or instruction.is_multi_output):
        return outputs[0]
    for output in outputs:
        hero = gpu.emitters.find_hero(body, output)
        if is_reduction_hero(output, hero, gpu.device) or gpu.emitters.tiled_transpose(hero):
            return hero
    return outputs[0]


class PlaceRule(Rule):
    """A rule about one instruction, asked before rules about pairs."""

    __slots__ = ()
    places: ClassVar[tuple[Place, ...]]

    @abstractmethod
    def check(self, instruction: MutableInstruction, state: MultiOutputState) -> Decision | None:
        """Return a refusal, or None if the rule has no objection."""


class OutputPairRule(Rule):
    """A rule about two instructions that would become one kernel."""

    __slots__ = ()
    relations: ClassVar[tuple[Relation, ...]] = tuple(Relation)

    @abstractmethod
    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        """Return a refusal, or None if the rule has no objection to the pair."""

    def looks_at(
        self, sibling: MutableInstruction, parent: MutableInstruction, state: MultiOutputState
    ) -> Hashable:
        """What ``check`` looks at in ``sibling``, the producer of a pair: a kernel gets the same
        answer about all siblings of which it is equal. A class with a ``check`` of its own has one
        of this, too; the one here holds for every rule."""
        return sibling


def preference(instruction: MutableInstruction) -> int:
    """Return a sort key: fusions with several outputs first, then other fusions, then operations.

    Source: FusionPriority.
    """
    return is_fusion(instruction) + instruction.is_multi_output


class ScalarParent(PlaceRule):
    __slots__ = ()
    id: ClassVar = "mof-parent"
    places: ClassVar = (Place.PARENT,)

    def check(self, instruction: MutableInstruction, state: MultiOutputState) -> Decision | None:
        shape = instruction.shape
        return self.refuse(shape=str(shape)) if is_effective_scalar(shape) else None


class OutputRoot(PlaceRule):
    __slots__ = ()
    id: ClassVar = "mof-root"
    places: ClassVar = (Place.SIBLING, Place.CONSUMER)
    message: ClassVar = "consumer not eligible as multi-output fusion root."
    is_legality: ClassVar = True

    def check(self, instruction: MutableInstruction, state: MultiOutputState) -> Decision | None:
        if (
            is_fusible(instruction)
            and not instruction.is_custom_fusion
            and (
                instruction.is_loop_fusion
                or is_elementwise(instruction)
                or is_input_reduction(instruction, state.gpu.device, state.gpu.emitters)
                or is_input_transpose(instruction, state.gpu.emitters)
            )
        ):
            return None
        return self.refuse(opcode=instruction.opcode)


class SiblingCandidate(PlaceRule):
    __slots__ = ()
    id: ClassVar = "mof-sibling-cand"
    places: ClassVar = (Place.SIBLING,)
    is_legality: ClassVar = True

    def check(self, instruction: MutableInstruction, state: MultiOutputState) -> Decision | None:
        if not instruction.users:
            return self.refuse(users=0)
        if instruction.shape.is_tuple and _is_looped_reduce(instruction, state.gpu):
            return self.refuse(reduces=len(instruction.shape.elements))
        if instruction.is_multi_output:
            for user in instruction.users:
                if user.opcode != "get-tuple-element":
                    return self.refuse(read_by=user.name)
        return None


def _is_looped_reduce(instruction: MutableInstruction, gpu: GpuState) -> bool:
    """Source: IsNestableVariadicReduction."""
    if is_fusion(instruction):
        return instruction.is_loop_fusion and instruction.fused.root.opcode == "reduce"
    return instruction.opcode == "reduce" and not has_reduction_emitter(instruction, gpu.device)


class SiblingOrder(Rule):
    __slots__ = ()
    id: ClassVar = "mof-order"
    is_legality: ClassVar = True

    def arrange(self, siblings: Sequence[MutableInstruction]) -> list[MutableInstruction]:
        """Return siblings in the order in which they absorb later ones."""
        return sorted(siblings, key=preference, reverse=True)


class OutputProducer(PlaceRule):
    __slots__ = ()
    id: ClassVar = "mof-pc-producer"
    places: ClassVar = (Place.PRODUCER,)
    is_legality: ClassVar = True

    def check(self, instruction: MutableInstruction, state: MultiOutputState) -> Decision | None:
        if instruction.is_multi_output:
            return self.refuse("Producer is a multi-output fusion")
        if in_place_operands(instruction):
            return self.refuse("In-place operations are present")
        if not self.is_loop_fusible(instruction, state.gpu):
            return self.refuse("producer is not loop-fusible", opcode=instruction.opcode)
        if is_transposing(instruction):
            return self.refuse("producer is physically transposing")
        return None

    def is_loop_fusible(self, instruction: MutableInstruction, gpu: GpuState) -> bool:
        """Return whether a loop fusion can begin with an instruction."""
        return _is_loop_fusible(instruction)


def _is_loop_fusible(producer: MutableInstruction) -> bool:
    """Source: IsLoopFusibleAsProducer, IsUniversallyLoopFusible."""
    if not is_fusible(producer):
        return False
    opcode = producer.opcode
    if opcode == "reduce":
        return not producer.shape.is_tuple
    if opcode == "iota" or is_elementwise(producer):
        return True
    return opcode in _LOOP_FUSIBLE or producer.is_loop_fusion or is_fusible_bitcast(producer)


def is_transposing(instruction: MutableInstruction) -> bool:
    """Source: IsPhysicallyTransposing."""
    operations = unfold(
        [instruction], lambda part: part.fused.instructions if is_fusion(part) else ()
    )
    return any(
        operation.opcode == "copy"
        or (
            operation.opcode == "transpose"
            and not transpose_is_bitcast(
                operation.operands[0].shape, operation.shape, operation.attribute("dimensions")
            )
        )
        for operation in operations
    )


class OnlyUser(PlaceRule):
    __slots__ = ()
    id: ClassVar = "mof-pc-single-user"
    places: ClassVar = (Place.PRODUCER,)

    def check(self, instruction: MutableInstruction, state: MultiOutputState) -> Decision | None:
        users = list(instruction.users)
        is_only = len(users) == 1 and not users[0].is_multi_output
        return self.refuse(users=1) if is_only else None


class Connected(OutputPairRule):
    __slots__ = ()
    id: ClassVar = "mof-connected"
    relations: ClassVar = (Relation.SIBLINGS,)
    is_legality: ClassVar = True

    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        first, second = pair.consumer, pair.producer
        if state.reaches(first, second) or state.reaches(second, first):
            return self.refuse(f"{first.name} and {second.name} are connected")
        return None


@dataclass(frozen=True, slots=True)
class Heroes(OutputPairRule):
    id: ClassVar = "mof-heroes"

    looped_transposes: int = 0  # with a reduction or a tiled transpose

    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        one, other = (state.hero_facts(end).emitted for end in (pair.consumer, pair.producer))
        if one.reduction and other.reduction and one.reduction != other.reduction:
            return self.refuse("tiled reductions with different shapes")
        if one.tiled and other.tiled:
            if not state.gpu.emitters.are_alike(one.tiled, other.tiled):
                return self.refuse("tiled transposes with different shapes")
            return None
        for first, second in ((one, other), (other, one)):
            if second.is_nested and not self.looped_transposes and (first.tiled or first.reduction):
                return self.refuse(
                    "multi-output fusion of a nested transpose with an unnested hero op"
                )
            if first.tiled and second.reduction:
                fusion = "MOF-fusion" if self.looped_transposes else "multi-output fusion"
                return self.refuse(f"{fusion} of a transpose and a reduction")
        return None

    def looks_at(
        self, sibling: MutableInstruction, parent: MutableInstruction, state: MultiOutputState
    ) -> Hashable:
        return state.hero_facts(sibling).emitted


class LoopShape(OutputPairRule):
    __slots__ = ()
    id: ClassVar = "mof-loop-shape"
    message: ClassVar = "different loop shapes"
    is_legality: ClassVar = True

    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        first, second = (
            state.hero_facts(end).looped_over for end in (pair.consumer, pair.producer)
        )
        if first is second or same_elements_in_memory(first, second):
            return None
        return self.refuse(consumer=str(first), producer=str(second))

    def looks_at(
        self, sibling: MutableInstruction, parent: MutableInstruction, state: MultiOutputState
    ) -> Hashable:
        return state.hero_facts(sibling).looped_over


@dataclass(frozen=True, slots=True)
class DisjointSlices(OutputPairRule):
    id: ClassVar = "mof-slices"
    relations: ClassVar = (Relation.SIBLINGS,)
    message: ClassVar = "slices are non-overlapping"

    bytes: int = 1024

    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        first = self._part(pair.parent, pair.consumer)
        second = None if first is None else self._part(pair.parent, pair.producer)
        if first is None or second is None:
            return None
        for dimension, (a, b) in enumerate(zip(first, second, strict=True)):
            if a.stop <= b.start or b.stop <= a.start:
                return self.refuse(dimension=dimension, bytes=self.bytes)
        return None

    def looks_at(
        self, sibling: MutableInstruction, parent: MutableInstruction, state: MultiOutputState
    ) -> Hashable:
        return self._part(parent, sibling)

    def _part(
        self, parent: MutableInstruction | None, reader: MutableInstruction
    ) -> tuple[range, ...] | None:
        """What ``reader`` reads of ``parent`` by dimension, None where that is not one slice, or
        ``parent`` is small."""
        if parent is None or parent.shape.byte_size < self.bytes:
            return None
        only_slice = _only_slice(parent, reader)
        return None if only_slice is None else tuple(slice_ranges(only_slice))


def _only_slice(
    parent: MutableInstruction, reader: MutableInstruction
) -> MutableInstruction | None:
    """Return the slice that is the only use of ``parent`` in ``reader``, or None.

    Source: FindUniqueSlice.
    """
    while is_fusion(reader):
        if parent.users.slots(reader) != 1:
            return None
        parent = reader.fused.parameters[reader.operands.index(parent)]
        if len(parent.users) != 1:
            return None
        reader = next(iter(parent.users))
    return reader if reader.opcode == "slice" else None


class SeveralUpdates(OutputPairRule):
    __slots__ = ()
    id: ClassVar = "mof-dus"
    relations: ClassVar = (Relation.SIBLINGS,)
    message: ClassVar = "can't fuse multiple DUSs"

    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        for end in (pair.consumer, pair.producer):
            if _ends_in_update(end):
                return self.refuse(updates=end.name)
        return None

    def looks_at(
        self, sibling: MutableInstruction, parent: MutableInstruction, state: MultiOutputState
    ) -> Hashable:
        return sibling.name if _ends_in_update(sibling) else None


def _ends_in_update(instruction: MutableInstruction) -> bool:
    return is_fusion(instruction) and instruction.fused.root.opcode == "dynamic-update-slice"


class OutputCycle(OutputPairRule):
    __slots__ = ()
    id: ClassVar = "mof-pc-cycle"
    relations: ClassVar = (Relation.PRODUCER_AND_CONSUMER,)
    is_legality: ClassVar = True

    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        producer = pair.producer
        for operand in pair.consumer.operands:
            if operand is not producer and state.reaches(producer, operand):
                message = f"{producer.name} would introduce a cycle when fused"
                return self.refuse(message, through=operand.name)
        return None


class OutputParameterBudget(ParameterBudget):
    """The same rule for a fusion with the outputs of both."""

    __slots__ = ()

    def check(self, pair: FusionPair, state: GpuState) -> Decision | None:
        return self.check_both(pair.consumer, pair.producer, state, grows_consumer=False)


@dataclass(frozen=True, slots=True)
class OutputCodeSize(OutputPairRule):
    id: ClassVar = "mof-pc-size"
    relations: ClassVar = (Relation.PRODUCER_AND_CONSUMER,)
    message: ClassVar = "will generate too large IR"

    limit: int = 10_000

    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        size = state.gpu.model.merged_size(pair.producer, pair.consumer)
        return self.refuse(instructions=size, limit=self.limit) if size > self.limit else None


class OutputCost(OutputPairRule):
    __slots__ = ()
    id: ClassVar = "mof-pc-cost"
    relations: ClassVar = (Relation.PRODUCER_AND_CONSUMER,)
    message: ClassVar = "will execute slower if fused"

    def check(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        unfused, fused = self.estimate(pair, state)
        if fused <= unfused:
            return None
        return self.refuse(
            fused_us=f"{microseconds(fused):g}", unfused_us=f"{microseconds(unfused):g}"
        )

    def estimate(self, pair: OutputPair, state: MultiOutputState) -> Estimate:
        return state.gpu.model.estimate_multi_output(pair.producer, pair.consumer)


class OutputChoice(Rule):
    __slots__ = ()
    id: ClassVar = "mof-pc-choice"

    def choose(self, consumers: Sequence[MutableInstruction]) -> MutableInstruction:
        return max(consumers, key=preference)


GPU_MULTI_OUTPUT: RuleBook[Rule] = RuleBook(
    "gpu-multi-output",
    "multi_output_fusion",
    "gpu",
    (
        ScalarParent(),
        OutputRoot(),
        SiblingCandidate(),
        SiblingOrder(),
        OutputProducer(),
        OnlyUser(),
        Connected(),
        Heroes(),
        LoopShape(),
        DisjointSlices(),
        SeveralUpdates(),
        OutputCycle(),
        SharedMemoryBudget(),
        ReductionBudget(),
        OutputParameterBudget(),
        OutputCodeSize(),
        OutputCost(),
        OutputChoice(),
    ),
)
