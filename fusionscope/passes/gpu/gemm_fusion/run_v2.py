"""Matrix multiplication fusions that grow while they can be tiled.

Source: xla/backends/gpu/transforms/gemm_fusion.cc, with xla_gpu_experimental_gemm_fusion_v2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fusionscope.graph.fusing import create_fusion, fuse_instruction, merge_fusion
from fusionscope.graph.layouts import reshape_is_bitcast
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    empty_module,
    remove_unused,
    replace_and_prune,
)
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.shape import Shape
from fusionscope.passes.gpu.gemm_fusion.bitcasts import (
    Exchanged,
    bitcast_of_broadcast,
    bitcast_of_transpose,
    broadcast_of_bitcast,
    transpose_of_bitcast,
    with_type_of,
)
from fusionscope.passes.gpu.gemm_fusion.fusion import (
    Asked,
    GemmFusion,
    Grown,
    add_gemm_fusion,
    copy_with,
)
from fusionscope.passes.gpu.gemm_fusion.rules import VIEWS, GemmState, Neighbour, find_refusal
from fusionscope.passes.gpu.gemm_fusion.rules_v2 import SpaceRule, TileCandidate, Tracked
from fusionscope.passes.gpu.gemm_fusion.shape_tracker import ShapeTracker
from fusionscope.passes.rule import NO_OBJECTION, Decision, Rule, RuleBook, first_decision


@dataclass(slots=True)
class GemmFusionV2(GemmFusion):
    _refusals: dict[MutableInstruction, Decision | None] = field(default_factory=dict)

    def _grow(self, dot: MutableInstruction, name: str) -> Grown | Decision:
        space = _SearchSpace(self.book, self.state, dot, self._refusal_to_include)
        output = space.fuse()
        return Grown(space.bring_back(name), output, tuple(space.asked))

    def _refusal_to_include(self, instruction: MutableInstruction) -> Decision | None:
        """Return why no fusion may have an instruction, which many dots' spaces may reach.

        Source: IncludeInSearchSpace.
        """
        known = self._refusals
        if instruction not in known or instruction.opcode == "rng":  # that depends on its users
            rules = (rule for rule in self.book if isinstance(rule, SpaceRule))
            checked = (rule.check(instruction, self.state) for rule in rules)
            known[instruction] = first_decision(checked)
        return known[instruction]


class _SearchSpace:
    """Clones of a dot and of all neighbours that could join its fusion, in a separate module.

    Source: FusionSearchSpace, CreateTileableFusion.
    """

    def __init__(
        self,
        book: RuleBook[Rule],
        state: GemmState,
        dot: MutableInstruction,
        refusal_to_include: Callable[[MutableInstruction], Decision | None],
    ) -> None:
        self._book = book
        self._state = state
        self._refusal_to_include = refusal_to_include
        self._dot = dot
        self._originals: dict[MutableInstruction, MutableInstruction] = {}
        self._left_out: dict[MutableInstruction, Decision] = {}
        self._entry = empty_module().add_computation(f"{dot.name}_computation")
        self._clones: dict[MutableInstruction, MutableInstruction] = {}
        # What reads the last instruction that may be in the fusion, where that is refused.
        self._behind: Asked | None = None
        self._entry.root = self._clone_all(self._last_user())
        self._fusion = self._clones[dot]
        self.asked: list[Asked] = []

    def _last_user(self) -> MutableInstruction:
        last = self._dot
        while len(last.users) == 1:
            user = next(iter(last.users))
            refusal = self._refusal_to_include(user)
            if refusal is not None:
                self._behind = Asked(user.name, refusal, is_operand=False)
                break
            last = user
        return last

    def _clone_all(self, last: MutableInstruction) -> MutableInstruction:
        """Source: FuseOperandsRecursively."""
        pending = [last]
        included = {self._dot}
        while pending:
            current = pending[-1]
            if current in self._clones:
                pending.pop()
                continue
            refusal = None if current in included else self._refusal_to_include(current)
            if refusal is not None:
                pending.pop()
                self._left_out[current] = refusal
                self._keep(current, self._entry.make_parameter(current.shape))
                continue
            included.add(current)
            missing = [
                operand for operand in reversed(current.operands) if operand not in self._clones
            ]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            operands = [self._clones[operand] for operand in current.operands]
            clone = copy_with(self._entry, current, current.shape, operands)
            clone.called = list(current.called)
            self._keep(current, self._entry.add(clone))
        return self._clones[last]

    def _keep(self, original: MutableInstruction, clone: MutableInstruction) -> None:
        self._clones[original] = clone
        self._originals[clone] = original

    def fuse(self) -> MutableInstruction:
        """Form the fusion. Return its final result, in the compiled module."""
        dot = self._fusion
        self._fusion = create_fusion(dot, "kCustom")
        self._entry.replace(dot, self._fusion)
        output = self._dot
        self._fuse_operands(
            [
                (self._clones[operand], Tracked.of_operand(self._dot, slot))
                for slot, operand in enumerate(self._dot.operands)
            ]
        )
        after: ShapeTracker | None = ShapeTracker.unchanged(self._dot.shape)
        while not self._fusion.is_root:
            user: MutableInstruction | None = next(iter(self._fusion.users))
            assert user is not None
            if user.opcode in VIEWS:
                user = self._sink(user)
                if user is None:
                    continue
            original = self._originals[user]
            candidate = TileCandidate(
                Neighbour.USER, user, original, self._fusion, self._fusion, after=after
            )
            decision = self._decision(candidate)
            self.asked.append(Asked(original.name, decision, is_operand=False))
            if not decision.allow:
                break
            after = None if after is None else _followed(after, user)
            self._fuse_user(user)
            output = original
        if self._fusion.is_root and self._behind is not None:
            self.asked.append(self._behind)
        self._remove_edge_bitcasts()
        return output

    def _decision(self, candidate: TileCandidate) -> Decision:
        return find_refusal(self._book, candidate, self._state) or NO_OBJECTION

    def _fuse_operands(self, queue: Sequence[tuple[MutableInstruction, Tracked | None]]) -> None:
        """Breadth first. Source: FuseOperandsBFS."""
        pending = deque(queue)
        while pending:
            operand, before = pending.popleft()
            if self._fusion not in operand.users:
                continue
            if operand.opcode in VIEWS:
                operand = self._hoist(operand)
            original = self._originals.get(operand, operand)
            candidate = TileCandidate(
                Neighbour.OPERAND, operand, original, self._fusion, self._fusion, before
            )
            if operand.opcode == "parameter":
                refusal = self._left_out.get(original)
                if refusal is not None and original.opcode != "parameter":
                    self.asked.append(Asked(original.name, refusal, is_operand=True))
                continue
            decision = self._decision(candidate)
            if operand in self._originals:
                self.asked.append(Asked(original.name, decision, is_operand=True))
            if not decision.allow:
                self._tell_behind(operand, decision)
                continue
            operands = list(operand.operands)
            clone = fuse_instruction(self._fusion, operand)
            pending.extend(
                (operand, None if before is None else before.through(clone, operand))
                for operand in operands
            )

    def _tell_behind(self, view: MutableInstruction, refusal: Decision) -> None:
        """What is behind a view stays outside with it."""
        source = view
        while source.opcode in VIEWS:
            source = source.operands[0]
        if source is not view and source in self._originals:
            name = self._originals[source].name
            self.asked.append(Asked(name, refusal, is_operand=True))

    def _fuse_user(self, user: MutableInstruction) -> None:
        """Source: FuseUserAndOperands."""
        fusion = self._fusion
        count = len(fusion.operands)
        self._fusion = create_fusion(user, "kCustom")
        self._entry.replace(user, self._fusion)
        merge_fusion(self._fusion, fusion)
        self._entry.remove(fusion)
        if len(self._fusion.operands) > count:
            self._fuse_operands([(operand, None) for operand in self._fusion.operands])

    def _remove_edge_bitcasts(self) -> None:
        """Source: RemoveEdgeBitcasts."""
        fused = self._fusion.fused
        for parameter in fused.parameters:
            changed = True
            while changed:
                changed = any(
                    user.opcode in VIEWS and self._hoist(user) is not user
                    for user in list(parameter.users)
                )
        while fused.root.opcode in VIEWS:
            root = fused.root
            if self._sink(root) is root:
                break

    def _hoist(self, bitcast: MutableInstruction) -> MutableInstruction:
        """Swap a bitcast with its operand as often as possible. Return what it became.

        Source: HoistBitcast.
        """
        while True:
            operand = bitcast.operands[0]
            shape = bitcast.shape
            if shape.element_type != operand.shape.element_type:
                return bitcast
            if operand.opcode == "parameter":
                return self._give_shape(operand, bitcast)
            if operand.opcode == "bitcast" or (
                operand.opcode == "reshape"
                and reshape_is_bitcast(operand.operands[0].shape, operand.shape)
            ):
                merged = bitcast.computation.make("bitcast", shape, [operand.operands[0]])
                self._stands_for(merged, operand)
                replace_and_prune(bitcast, merged)
                bitcast = merged
                continue
            made = self._before(bitcast, operand)
            if made is None:
                return bitcast
            self._stands_for(made, operand)
            replace_and_prune(bitcast, made)
            return made

    def _give_shape(
        self, parameter: MutableInstruction, bitcast: MutableInstruction
    ) -> MutableInstruction:
        """Give a parameter the shape that all its users convert it to, if it is the same one.

        Source: CanReplaceParameterShape.
        """
        for user in parameter.users:
            if (
                user.opcode not in VIEWS
                or user.shape != bitcast.shape
                or (
                    user.opcode == "reshape" and not reshape_is_bitcast(parameter.shape, user.shape)
                )
            ):
                return bitcast
        parameter.shape = bitcast.shape
        for user in list(parameter.users):
            replace_and_prune(user, parameter)
        return parameter

    def _before(
        self, bitcast: MutableInstruction, operand: MutableInstruction
    ) -> MutableInstruction | None:
        """Return ``operand`` after the swap with the bitcast that read it."""
        computation, shape = bitcast.computation, bitcast.shape
        if operand.opcode == "constant":
            if operand.shape.element_count != 1:
                return None
            value = operand.literal.strip("{} ")
            literal = f"{'{ ' * (shape.rank - 1)}{{{value}}}{' }' * (shape.rank - 1)}"
            made = copy_with(computation, operand, shape, [])
            made.inside = literal if shape.rank else value
            return computation.add(made)
        if operand.opcode in ("broadcast", "transpose"):
            found = (
                bitcast_of_broadcast(operand, shape)
                if operand.opcode == "broadcast"
                else bitcast_of_transpose(operand, shape)
            )
            if found is None:
                return None
            source = operand.operands[0]
            inner = computation.make("bitcast", with_type_of(found.shape, source.shape), [source])
            return self._add_moved(computation, operand, Exchanged(shape, found.dimensions), inner)
        if not is_elementwise(operand):
            return None
        operands = [
            computation.make("bitcast", with_type_of(shape, each.shape), [each])
            for each in operand.operands
        ]
        return computation.add(copy_with(computation, operand, shape, operands))

    def _add_moved(
        self,
        computation: MutableComputation,
        old: MutableInstruction,
        exchanged: Exchanged,
        operand: MutableInstruction,
    ) -> MutableInstruction:
        """Add a broadcast or a transpose."""
        name = computation.module.instruction_name(old.name)
        text = f", dimensions={{{','.join(map(str, exchanged.dimensions))}}}"
        made = MutableInstruction(name, old.opcode, exchanged.shape, [operand], text)
        made.origin = old.origin
        return computation.add(made)

    def _sink(self, bitcast: MutableInstruction) -> MutableInstruction | None:
        """Swap a bitcast with its only user as often as possible. Return the user of its operand,
        or None if it was the root. Source: SinkBitcast.
        """
        while True:
            operand, computation = bitcast.operands[0], bitcast.computation
            if bitcast.shape.element_type != operand.shape.element_type:
                return bitcast
            if bitcast.is_root:
                computation.root = operand
                remove_unused(bitcast)
                return None
            if len(bitcast.users) != 1:
                return bitcast
            user = next(iter(bitcast.users))
            if user.opcode == "bitcast" or (
                user.opcode == "reshape" and reshape_is_bitcast(bitcast.shape, user.shape)
            ):
                merged = computation.make("bitcast", user.shape, [operand])
                self._stands_for(merged, user)
                replace_and_prune(user, merged)
                bitcast = merged
                continue
            made = self._after(bitcast, user)
            if made is None:
                return bitcast
            last = computation.make("bitcast", user.shape, [made])
            self._stands_for(last, user)
            self._stands_for(made, user)
            replace_and_prune(user, last)
            if last.is_root:
                computation.root = made
                remove_unused(last)
            return made

    def _after(
        self, bitcast: MutableInstruction, user: MutableInstruction
    ) -> MutableInstruction | None:
        """Return ``user`` after the swap with the bitcast that it read."""
        computation, operand = bitcast.computation, bitcast.operands[0]
        shape = operand.shape
        if user.opcode in ("broadcast", "transpose"):
            moved = (
                broadcast_of_bitcast(user, shape)
                if user.opcode == "broadcast"
                else transpose_of_bitcast(user, shape)
            )
            return None if moved is None else self._add_moved(computation, user, moved, operand)
        if not is_elementwise(user):
            return None
        operands = [
            operand
            if each is bitcast
            else computation.make("bitcast", with_type_of(shape, each.shape), [each])
            for each in user.operands
        ]
        user_copy = copy_with(computation, user, with_type_of(shape, user.shape), operands)
        return computation.add(user_copy)

    def _stands_for(self, replacement: MutableInstruction, old: MutableInstruction) -> None:
        original = self._originals.get(old)
        if original is not None:
            self._keep(original, replacement)

    def bring_back(self, name: str) -> MutableInstruction:
        """Put the fusion into the compiled module, where nothing reads it yet."""
        computation = self._dot.computation
        graph = computation.module
        fused = self._fusion.fused
        inputs = [
            self._original(operand, parameter.shape)
            for operand, parameter in zip(self._fusion.operands, fused.parameters, strict=True)
        ]
        reducer = graph.add_computation(f"{fused.name}.{name}_computation")
        copies: dict[MutableInstruction, MutableInstruction] = {}
        for inner in fused.post_order():
            operands = [copies[operand] for operand in inner.operands]
            copies[inner] = reducer.add(copy_with(reducer, inner, inner.shape, operands))
        reducer.parameters.sort(key=lambda parameter: parameter.parameter_number)
        reducer.root = copies[fused.root]
        return add_gemm_fusion(self._dot, name, reducer, inputs)

    def _original(self, operand: MutableInstruction, shape: Shape) -> MutableInstruction:
        """Return the instruction of the compiled module for an operand of the fusion.

        Source: GetOrCreateOriginalInstruction.
        """
        computation = self._dot.computation
        original = self._originals.get(operand)
        if original is not None:
            if original.shape == shape:
                return original
            return computation.make("bitcast", shape, [original])
        source = self._original(operand.operands[0], shape)
        bitcast = computation.make("bitcast", shape, [source])
        self._keep(bitcast, operand)
        return bitcast


def _followed(tracker: ShapeTracker, user: MutableInstruction) -> ShapeTracker | None:
    """Return the tracker with ``user`` appended, or None if its effect on elements is unknown."""
    following = tracker.then(user)
    if following is None and is_elementwise(user):
        return tracker.with_element_type(user.shape.element_type)
    return following
