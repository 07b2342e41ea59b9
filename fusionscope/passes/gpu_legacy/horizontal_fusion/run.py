"""Replays horizontal fusion: operands of one consumer become one kernel, side by side.

Source: xla/service/gpu/transforms/horizontal_loop_fusion.cc and horizontal_input_fusion.cc of
October 2024.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fusionscope.gpu.state import GpuState
from fusionscope.graph.fusing import clone_into, create_fusion, merge_outputs
from fusionscope.graph.layouts import minor_to_major, sizes
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.hlo.shape import TUPLE, Layout, Shape
from fusionscope.passes.context import PassContext
from fusionscope.passes.gpu.multi_output_fusion.rules import (
    MultiOutputState,
    OutputPair,
    OutputPairRule,
    outputs_of,
)
from fusionscope.passes.gpu.priority_fusion.computation import fusible_computations
from fusionscope.passes.gpu.priority_fusion.rules import GpuPairRule
from fusionscope.passes.gpu_legacy.horizontal_fusion.rules import (
    Batch,
    SiblingRule,
    Siblings,
    age,
    alike,
    computed,
    count_instructions,
    have_one_shape,
)
from fusionscope.passes.plan import FusionPlan, PairDecision, decided
from fusionscope.passes.rule import NO_OBJECTION, Decision, Rule, RuleBook, first_decision


def run(graph: MutableModule, book: RuleBook[Rule], context: PassContext) -> FusionPlan:
    joins_loops = book.pass_name.endswith("loop_fusion")
    horizontal = HorizontalLoopFusion if joins_loops else HorizontalInputFusion
    return horizontal(graph, book, context.gpu_state()).run()


def _connects_nothing(start: MutableInstruction, end: MutableInstruction) -> bool:
    """Stand in for reachability: operands with one consumer cannot form a cycle."""
    return False


def _as_fusion(instruction: MutableInstruction, kind: str) -> MutableInstruction:
    if instruction.opcode == "fusion":
        return instruction
    fusion = create_fusion(instruction, kind)
    instruction.computation.replace(instruction, fusion)
    return fusion


@dataclass(slots=True)
class HorizontalLoopFusion:
    """The pass over the entry of ``graph``, or also over its other computations, with the rules of
    ``book``.

    It goes from results to operands, and also treats each new fusion as a consumer: first for loops
    over one shape, then for slices of one long output.
    """

    graph: MutableModule
    book: RuleBook[Rule]
    state: GpuState

    def run(self) -> FusionPlan:
        candidate = next(rule for rule in self.book if isinstance(rule, SiblingRule))
        computations = [self.graph.entry]
        if not candidate.visits_entry_only:
            computations = list(fusible_computations(self.graph))
        decisions: list[PairDecision] = []
        for computation in computations:
            run = _LoopRun(self.book, self.state, computation)
            run.run()
            decisions += run.decisions
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph)


class _LoopRun:
    def __init__(
        self, book: RuleBook[Rule], gpu: GpuState, computation: MutableComputation
    ) -> None:
        self.decisions: list[PairDecision] = []
        self._rules = [rule for rule in book if isinstance(rule, SiblingRule)]
        self._batch = next((rule for rule in book if isinstance(rule, Batch)), Batch())
        self._state = MultiOutputState(gpu, _connects_nothing)
        self._computation = computation
        self._waiting = computation.post_order()
        self._told: set[tuple[str, str, str]] = set()

    def run(self) -> None:
        while self._waiting:
            consumer = self._waiting.pop()
            if consumer.parent is not None and (consumer.users or consumer.is_root):
                for has_slices in (False, True):
                    transparent = self._rules[0].transparent
                    self._fuse_operands(Siblings(consumer, has_slices, transparent))

    def _fuse_operands(self, siblings: Siblings) -> None:
        """Source: FuseConsumerOperands."""
        first_rule, *rules = self._rules
        operands = dict.fromkeys(
            computed(operand, siblings.transparent) for operand in siblings.consumer.operands
        )
        candidates = [
            operand for operand in operands if self._allows(first_rule, operand, siblings)
        ]
        siblings = replace(siblings, candidates=candidates)
        fusible = [
            candidate
            for candidate in candidates
            if all(self._allows(rule, candidate, siblings) for rule in rules)
        ]
        if first_rule.begins_with_oldest:
            fusible.sort(key=age)
        fusible.sort(key=alike)
        while fusible:
            count = self._batch.take(fusible, has_slices=siblings.has_slices)
            if count > 1:
                self._fuse(fusible[:count], has_slices=siblings.has_slices)
            if count < len(fusible):
                first, next_fusible = fusible[0], fusible[count]
                if siblings.has_slices or have_one_shape(
                    first, next_fusible
                ):  # else slices come next
                    self._tell(first, next_fusible, self._batch.refuse())
            fusible = fusible[count:]

    def _allows(
        self, rule: SiblingRule, instruction: MutableInstruction, siblings: Siblings
    ) -> bool:
        decision = rule.check(instruction, siblings, self._state)
        if decision is not None:
            self._tell(instruction, siblings.consumer, decision)
        return decision is None

    def _tell(
        self,
        first: MutableInstruction,
        second: MutableInstruction,
        decision: Decision,
        fusion: MutableInstruction | None = None,
    ) -> None:
        """Record a decision once, even if it is made twice."""
        key = first.name, second.name, decision.rule
        if fusion is not None or key not in self._told:
            self._told.add(key)
            names = self._computation.name, first.name, second.name  # both may be removed by now
            fusion_name = fusion.name if fusion is not None else None
            self.decisions.append(PairDecision(*names, decision, fusion_name))

    def _fuse(self, members: Sequence[MutableInstruction], *, has_slices: bool) -> None:
        """Source: Fuse."""
        computation = self._computation
        fusions = [_as_fusion(member, "kLoop") for member in members]
        joined = _side_by_side(fusions, computation, has_slices=has_slices)
        self._waiting.append(joined)
        for member in members[1:]:
            self._tell(members[0], member, NO_OBJECTION, joined)
        index = 0
        for fusion in fusions:
            results: list[MutableInstruction] = []
            for output in outputs_of(fusion):
                element = computation.make(
                    "get-tuple-element", joined.shape.elements[index], [joined], f", index={index}"
                )
                if output.shape.rank != 1:
                    element = computation.make("bitcast", output.shape, [element])
                results.append(element)
                index += 1
            result = results[0]
            if len(results) > 1:
                shape = Shape(TUPLE, elements=tuple(result.shape for result in results))
                result = computation.make("tuple", shape, results)
            computation.replace(fusion, result)
        _read_once(joined)


def _side_by_side(
    fusions: Sequence[MutableInstruction], computation: MutableComputation, *, has_slices: bool
) -> MutableInstruction:
    """Return a fusion of what is in ``fusions``, which stay. Source: CreateFusedComputation."""
    module = computation.module
    fused = module.add_computation("horizontally_fused_computation")
    clones: dict[MutableInstruction, MutableInstruction] = {}
    operands: list[MutableInstruction] = []
    for fusion in fusions:
        for parameter, operand in zip(fusion.fused.parameters, fusion.operands, strict=True):
            clones[parameter] = fused.make_parameter(operand.shape)
            operands.append(operand)
    for fusion in fusions:
        root = fusion.fused.root
        for instruction in fusion.fused.post_order():
            is_left_out = has_slices and instruction is root and instruction.opcode == "tuple"
            if instruction.opcode != "parameter" and not is_left_out:
                inside = [clones[operand] for operand in instruction.operands]
                clones[instruction] = clone_into(instruction, fused, inside)
    outputs = [[clones[output] for output in outputs_of(fusion)] for fusion in fusions]
    if has_slices:
        outputs = _sliced(fused, outputs)
    results = [output for each in outputs for output in each]
    shape = Shape(TUPLE, elements=tuple(result.shape for result in results))
    fused.root = fused.make("tuple", shape, results)
    name = module.instruction_name("fusion")
    fusion = MutableInstruction(name, "fusion", shape, operands)
    fusion.fusion_kind = "kInput" if has_slices else "kLoop"
    fusion.called = [fused]
    return computation.add(fusion)


def _sliced(
    computation: MutableComputation, outputs: list[list[MutableInstruction]]
) -> list[list[MutableInstruction]]:
    """Return slices of one long output for the outputs of each fusion, by fusion."""
    slices: list[list[MutableInstruction]] = [[] for _ in outputs]
    for same in zip(*outputs, strict=True):
        flat = [_flat(computation, part) for part in same]
        total = sum(part.shape.element_count for part in flat)
        long = computation.make(
            "concatenate", _line(flat[0].shape, total), flat, ", dimensions={0}"
        )
        start = 0
        for place, part in enumerate(flat):
            size = part.shape.element_count
            text = f", slice={{[{start}:{start + size}]}}"
            slices[place].append(computation.make("slice", _line(part.shape, size), [long], text))
            start += size
    return slices


def _flat(computation: MutableComputation, output: MutableInstruction) -> MutableInstruction:
    shape = output.shape
    if shape.rank == 1:
        return output
    order = minor_to_major(shape)[::-1]
    if list(order) != sorted(order):
        dimensions = tuple(shape.dimensions[number] for number in order)
        descending = Layout(tuple(reversed(range(shape.rank))))
        output = computation.make(
            "bitcast",
            Shape(shape.element_type, dimensions, shape.dynamic, descending),
            [output],
        )
    return computation.make("reshape", _line(shape, shape.element_count), [output])


def _line(shape: Shape, elements: int) -> Shape:
    return Shape(shape.element_type, (elements,), (False,), Layout((0,)))


def _read_once(fusion: MutableInstruction) -> None:
    """Make each operand occupy one slot. Source: DeduplicateFusionOperands."""
    fused, slots = fusion.fused, dict[MutableInstruction, int]()
    doubled: list[int] = []
    for slot, operand in enumerate(fusion.operands):
        first = slots.setdefault(operand, slot)
        if first != slot:
            fused.replace_uses(fused.parameters[slot], fused.parameters[first])
            doubled.append(slot)
    for slot in reversed(doubled):
        fused.remove(fused.parameters[slot])
        operand = fusion.operands.pop(slot)
        operand.users.drop(fusion)
    for number, parameter in enumerate(fused.parameters):
        parameter.inside = str(number)


@dataclass(slots=True)
class HorizontalInputFusion:
    """The pass over ``graph``, with the rules of ``book``."""

    graph: MutableModule
    book: RuleBook[Rule]
    state: GpuState

    def run(self) -> FusionPlan:
        state = MultiOutputState(self.state, _connects_nothing)
        decisions: list[PairDecision] = []
        for computation in self.graph.post_order():
            if not computation.is_fused:
                for consumer in computation.post_order():
                    if len(consumer.operands) > 1:
                        decisions += self._fuse_operands(consumer, state)
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph)

    def _fuse_operands(
        self, consumer: MutableInstruction, state: MultiOutputState
    ) -> Iterator[PairDecision]:
        rules = [rule for rule in self.book if isinstance(rule, SiblingRule)]
        siblings = Siblings(consumer, has_slices=False, transparent=rules[0].transparent)
        candidates: list[MutableInstruction] = []
        for operand in dict.fromkeys(
            computed(operand, siblings.transparent) for operand in consumer.operands
        ):
            refusal = first_decision(rule.check(operand, siblings, state) for rule in rules)
            if refusal is None:
                candidates.append(operand)
            else:
                yield decided(operand, consumer, refusal)
        if len(candidates) < 2:
            return
        if rules[0].begins_with_oldest:
            candidates.sort(key=age)
        candidates.sort(
            key=lambda operand: (*_input_sizes(operand, state), count_instructions(operand))
        )
        fusions = [_as_fusion(candidate, "kInput") for candidate in candidates]
        anchor = fusions[0]
        for fusion in fusions[1:]:
            pair = OutputPair(fusion, anchor, 0, None)
            refusal = self._refusal(pair, state)
            if refusal is not None:
                yield decided(fusion, anchor, refusal)
                anchor = fusion
            else:
                yield decided(fusion, anchor, NO_OBJECTION, anchor)
                merge_outputs(anchor, fusion)
                for changed in (anchor, fusion):
                    self.state.model.invalidate(changed)
                    state.changed(changed)

    def _refusal(self, pair: OutputPair, state: MultiOutputState) -> Decision | None:
        for rule in self.book:
            decision = None
            if isinstance(rule, OutputPairRule):
                decision = rule.check(pair, state)
            elif isinstance(rule, GpuPairRule):
                decision = rule.check(pair, self.state)
            if decision is not None:
                return decision
        return None


def _input_sizes(
    candidate: MutableInstruction, state: MultiOutputState
) -> tuple[int, tuple[int, ...]]:
    """Return the rank and dimensions of the input of its reduction.

    Source: GetInputShapeForMultiOutputFusion.
    """
    hero = state.hero(candidate)
    shape = hero.operands[0].shape if hero.operands else hero.shape
    return shape.rank, sizes(shape)
