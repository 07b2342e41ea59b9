"""The rules of horizontal fusion, which fuses operands of one consumer into one kernel, side by
side.

Horizontal loop fusion handles small elementwise kernels, horizontal input fusion handles
reductions. Source of all: xla/service/gpu/transforms/horizontal_loop_fusion.cc and
horizontal_input_fusion.cc of October 2024 (both gone now).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fusionscope.dump.device import ELEMENT_TYPES
from fusionscope.gpu.cost.model import is_input_reduction
from fusionscope.gpu.reductions import has_reduction_emitter
from fusionscope.gpu.state import is_fusion
from fusionscope.graph.layouts import minor_to_major
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import INTEGRAL, is_elementwise, same_but_for_type
from fusionscope.hlo.search import reachable
from fusionscope.hlo.shape import Shape
from fusionscope.passes.gpu.multi_output_fusion.rules import (
    LoopShape,
    MultiOutputState,
    OutputParameterBudget,
    outputs_of,
)
from fusionscope.passes.gpu.priority_fusion.rules import (
    ReductionBudget,
    SharedMemoryBudget,
)
from fusionscope.passes.gpu_legacy.multi_output_fusion.rules import TiledHeroes
from fusionscope.passes.rule import Decision, Rule, RuleBook

_NUMBER = re.compile(r"\.(\d+)")
_TYPE_ORDER = {name: number for number, name in ELEMENT_TYPES.items()}


def computed(operand: MutableInstruction, transparent: frozenset[str]) -> MutableInstruction:
    """Return the instruction behind a chain of ``transparent`` ones. Source:
    LatestNonGteAncestor, LatestNonTrivialAncestor.
    """
    instruction = operand
    while instruction.opcode in transparent:
        instruction = instruction.operands[0]
    return instruction


def count_instructions(instruction: MutableInstruction) -> int:
    """Return the number of instructions, with a fusion's parameters (GetInstrCountOfFusible)."""
    return len(instruction.fused.instructions) if is_fusion(instruction) else 1


def _is_only_read_by(instruction: MutableInstruction, siblings: Siblings) -> bool:
    """Return whether none but consumer and root reads it. Source: IsConsumerTheOnlyNonRootUser."""
    consumer, transparent = siblings.consumer, siblings.transparent

    def elements(value: MutableInstruction) -> list[MutableInstruction]:
        return [user for user in value.users if user.opcode in transparent]

    return all(
        user is consumer or user.is_root or user.opcode in transparent
        for value in reachable([instruction], elements)
        for user in value.users
    )


@dataclass(frozen=True, slots=True)
class Siblings:
    """Operands of ``consumer`` that could become one kernel: a loop over outputs of one shape or,
    with ``has_slices``, one in which each writes its slice of a long output. ``transparent`` are
    the operations that may be between.
    """

    consumer: MutableInstruction
    has_slices: bool
    transparent: frozenset[str]
    candidates: Sequence[MutableInstruction] = ()


class SiblingRule(Rule):
    """A rule about one operand of a consumer, which might be fused with others.

    The rule about candidates also says where they are looked for, and in which order.
    """

    __slots__ = ()
    begins_with_oldest: ClassVar = False  # of equal candidates, not with the first operand
    visits_entry_only: ClassVar = True  # and no bodies of loops
    transparent: ClassVar = frozenset({"get-tuple-element"})  # between candidates and consumer

    @abstractmethod
    def check(
        self, instruction: MutableInstruction, siblings: Siblings, state: MultiOutputState
    ) -> Decision | None:
        """Return a refusal, or None if the rule has no objection."""


class LoopCandidate(SiblingRule):
    __slots__ = ()
    id: ClassVar = "leg-hl-candidate"
    is_legality: ClassVar = True

    def check(
        self, instruction: MutableInstruction, siblings: Siblings, state: MultiOutputState
    ) -> Decision | None:
        if instruction.predecessors or instruction.successors:
            return self.refuse(waits="control dependency")
        if instruction.shape.is_tuple and _is_looped_reduce(instruction, state):
            return self.refuse(reduces=len(instruction.shape.elements))
        if is_elementwise(instruction) and instruction.operands:
            return None
        if not self.is_loop(instruction):
            return self.refuse(opcode=instruction.opcode)
        types = {output.shape.element_type for output in outputs_of(instruction)}
        return self.refuse(types=len(types)) if len(types) > 1 else None

    def is_loop(self, instruction: MutableInstruction) -> bool:
        return instruction.is_loop_fusion


class LaterLoopCandidate(LoopCandidate):
    """A fusion that ends in a concatenate is a loop, too, and one that updates a slice is none.
    Single copies are joined in the entry only.
    """

    __slots__ = ()
    begins_with_oldest: ClassVar = True
    visits_entry_only: ClassVar = False
    transparent: ClassVar = frozenset({"bitcast", "get-tuple-element"})

    def check(
        self, instruction: MutableInstruction, siblings: Siblings, state: MultiOutputState
    ) -> Decision | None:
        if instruction.opcode == "copy" and instruction.computation.callers:
            return self.refuse(opcode=instruction.opcode)
        return LoopCandidate.check(self, instruction, siblings, state)

    def is_loop(self, instruction: MutableInstruction) -> bool:
        if not is_fusion(instruction):
            return False
        root = instruction.fused.root.opcode
        return root == "concatenate" or (
            instruction.is_loop_fusion and root != "dynamic-update-slice"
        )


class UpdateCandidate(LaterLoopCandidate):
    """Fusions that update a slice are loops, too."""

    __slots__ = ()

    def is_loop(self, instruction: MutableInstruction) -> bool:
        return instruction.is_loop_fusion or LaterLoopCandidate.is_loop(self, instruction)


def _is_looped_reduce(instruction: MutableInstruction, state: MultiOutputState) -> bool:
    """Source: IsNestableVariadicReduction."""
    if is_fusion(instruction):
        return instruction.is_loop_fusion and instruction.fused.root.opcode == "reduce"
    return instruction.opcode == "reduce" and not has_reduction_emitter(
        instruction, state.gpu.device
    )


class OtherReaders(SiblingRule):
    __slots__ = ()
    id: ClassVar = "leg-hl-legal"
    is_legality: ClassVar = True

    def check(
        self, instruction: MutableInstruction, siblings: Siblings, state: MultiOutputState
    ) -> Decision | None:
        return None if _is_only_read_by(instruction, siblings) else self.refuse()


@dataclass(frozen=True, slots=True)
class LongKernels(SiblingRule):
    id: ClassVar = "leg-hl-profit"

    loop_elements: int = 8192 * 8192
    loop_instructions: int = 128
    slice_elements: int = 128 * 2048
    slice_instructions: int = 30

    def check(
        self, instruction: MutableInstruction, siblings: Siblings, state: MultiOutputState
    ) -> Decision | None:
        most, longest = self.loop_elements, self.loop_instructions
        if siblings.has_slices:
            most, longest = self.slice_elements, self.slice_instructions
        elements = outputs_of(instruction)[0].shape.element_count
        if elements > most:
            return self.refuse(elements=elements, limit=most)
        count = count_instructions(instruction)
        return self.refuse(instructions=count, limit=longest) if count > longest else None


class ColumnLayout(SiblingRule):
    __slots__ = ()
    id: ClassVar = "leg-hl-layout"

    def check(
        self, instruction: MutableInstruction, siblings: Siblings, state: MultiOutputState
    ) -> Decision | None:
        inside = instruction.fused.instructions if is_fusion(instruction) else (instruction,)
        for each in inside:
            if each.shape.is_array and not _is_row_major(each.shape):
                return self.refuse(layout=str(each.shape))
        return None


def _is_row_major(shape: Shape) -> bool:
    return minor_to_major(shape) == tuple(reversed(range(shape.rank)))


class SharedParameter(SiblingRule):
    __slots__ = ()
    id: ClassVar = "leg-hl-shared-param"

    def check(
        self, instruction: MutableInstruction, siblings: Siblings, state: MultiOutputState
    ) -> Decision | None:
        for operand in instruction.operands:
            if operand.opcode == "parameter":
                for user in operand.users:
                    if user is not instruction and user in siblings.candidates:
                        return self.refuse(parameter=operand.name, other=user.name)
        return None


class SharedOperand(SharedParameter):
    """Slices of one output, and fusions that update a slice, read nothing in common.

    Source: AnyOperandIsSharedAmongFusions.
    """

    __slots__ = ()

    def check(
        self, instruction: MutableInstruction, siblings: Siblings, state: MultiOutputState
    ) -> Decision | None:
        if not (siblings.has_slices or _updates_slice(instruction)):
            return None
        for operand in instruction.operands:
            for user in operand.users:
                if user is not instruction and user in siblings.candidates:
                    return self.refuse(operand=operand.name, reader=user.name)
        return None


def _updates_slice(instruction: MutableInstruction) -> bool:
    """Source: IsDynamicUpdateSliceFusion."""
    return is_fusion(instruction) and any(
        output.opcode == "dynamic-update-slice" for output in outputs_of(instruction)
    )


def age(instruction: MutableInstruction) -> tuple[int, int]:
    """Return a key that grows with the id of an instruction, which no text shows: fusions come
    after what they are made of, then copies, and names of a kind are numbered.
    """
    number = _NUMBER.search(instruction.name)
    kinds = ("fusion", "copy")
    kind = 1 + kinds.index(instruction.opcode) if instruction.opcode in kinds else 0
    return kind, int(number[1]) if number else 0


class Alike(NamedTuple):
    """The sort key of candidates. Adjacent ones are fused."""

    element_type: int
    outputs: int
    instructions: int
    elements: int


def alike(instruction: MutableInstruction) -> Alike:
    outputs = outputs_of(instruction)
    first = outputs[0].shape
    return Alike(
        _TYPE_ORDER.get(first.element_type, 0),
        len(outputs) if instruction.is_multi_output else 1,
        count_instructions(instruction),
        first.element_count,
    )


@dataclass(frozen=True, slots=True)
class Batch(Rule):
    id: ClassVar = "leg-hl-batch"

    fusions: int = 32
    operations: int = 64
    parameter_bytes: int = 4000

    def take(self, candidates: Sequence[MutableInstruction], *, has_slices: bool) -> int:
        """Return how many of the first ``candidates`` become one kernel."""
        first = candidates[0]
        is_small = has_slices or is_fusion(first)
        limit = self.fusions if is_small else self.operations
        outputs = buffers = cost = 0
        for count, candidate in enumerate(candidates):
            first_likeness, likeness = alike(first), alike(candidate)
            if not self.are_alike(first_likeness, likeness) or not (
                has_slices or have_one_shape(first, candidate)
            ):
                return max(count, 1)
            if count or self.counts_first():
                outputs += likeness.outputs
                buffers += len(candidate.operands) + likeness.outputs
                cost += self.unroll_cost(candidate)
            if outputs >= limit or 8 * buffers >= self.parameter_bytes or self.is_too_long(cost):
                return max(count, 1)
        return len(candidates)

    def are_alike(self, first: Alike, second: Alike) -> bool:
        """Return whether two candidates can be in one kernel, whatever their shapes."""
        return first[:3] == second[:3]

    def counts_first(self) -> bool:
        """Whether the limits count the first candidate too."""
        return True

    def unroll_cost(self, instruction: MutableInstruction) -> int:
        """Return the instructions emitted for one element. Source: GetInstrUnrollCostOfFusible."""
        inside = instruction.fused.instructions if is_fusion(instruction) else (instruction,)
        return sum(map(_emitted, inside))

    def is_too_long(self, cost: int) -> bool:
        return False


def have_one_shape(first: MutableInstruction, second: MutableInstruction) -> bool:
    return same_but_for_type(outputs_of(first)[0].shape, outputs_of(second)[0].shape)


_NOT_EMITTED = frozenset(
    "bitcast broadcast constant parameter reshape slice transpose tuple".split()
)
_LONG_FUNCTIONS = frozenset(
    "abs ceil floor round-nearest-afz round-nearest-even rsqrt sqrt".split()
)


def _emitted(instruction: MutableInstruction) -> int:
    if instruction.opcode in _NOT_EMITTED:
        return 0
    is_integral = instruction.shape.element_type in INTEGRAL
    return 20 if not is_integral and instruction.opcode in _LONG_FUNCTIONS else 1


@dataclass(frozen=True, slots=True)
class UnrolledBatch(Batch):
    """In 0.4.34 and 0.4.35, a kernel holds no more than an unrolled loop can."""

    unrolled: int = 100

    def is_too_long(self, cost: int) -> bool:
        return cost >= self.unrolled


class InputCandidate(SiblingRule):
    __slots__ = ()
    id: ClassVar = "leg-hi-candidate"
    is_legality: ClassVar = True

    def check(
        self, instruction: MutableInstruction, siblings: Siblings, state: MultiOutputState
    ) -> Decision | None:
        if instruction.is_custom_fusion or not is_input_reduction(
            instruction, state.gpu.device, state.gpu.emitters
        ):
            return self.refuse(opcode=instruction.opcode)
        if not _is_only_read_by(instruction, siblings):
            return self.refuse(users=len(instruction.users))
        return None


class BatchOfAnyLength(Batch):
    """In 0.4.38 to 0.6.2, whatever the candidates compute."""

    __slots__ = ()

    def are_alike(self, first: Alike, second: Alike) -> bool:
        return first[:2] == second[:2]


class LaterInputCandidate(InputCandidate):
    __slots__ = ()
    begins_with_oldest: ClassVar = True


HORIZONTAL_LOOP: RuleBook[Rule] = RuleBook(
    "legacy-horizontal-loop",
    "horizontal_loop_fusion",
    "gpu",
    (
        LoopCandidate(),
        OtherReaders(),
        LongKernels(),
        ColumnLayout(),
        SharedParameter(),
        UnrolledBatch(),
    ),
)


HORIZONTAL_INPUT: RuleBook[Rule] = RuleBook(
    "legacy-horizontal-input",
    "horizontal_input_fusion",
    "gpu",
    (
        InputCandidate(),
        TiledHeroes(),
        LoopShape(),
        SharedMemoryBudget(),
        ReductionBudget(),
        OutputParameterBudget(),
    ),
)
