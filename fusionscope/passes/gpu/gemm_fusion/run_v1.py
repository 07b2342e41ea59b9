"""Matrix multiplication fusions that grow while the dot's dimensions stay in order.

Source: xla/backends/gpu/transforms/gemm_fusion.cc, without xla_gpu_experimental_gemm_fusion_v2.
"""

from __future__ import annotations

from collections import deque
from math import prod

from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.search import post_order
from fusionscope.passes.gpu.gemm_fusion.dimension_order import (
    FOLLOWING,
    NO_SPLIT,
    DimensionOrder,
    DotSide,
    Iteration,
    Propagated,
    combine_splits,
    propagate,
)
from fusionscope.passes.gpu.gemm_fusion.fusion import (
    Asked,
    GemmFusion,
    Grown,
    add_gemm_fusion,
    copy_with,
)
from fusionscope.passes.gpu.gemm_fusion.rules import (
    GemmState,
    Neighbour,
    added_parameters,
    find_refusal,
)
from fusionscope.passes.gpu.gemm_fusion.rules_v1 import (
    LoneDot,
    OrderedCandidate,
    OrderedDimensions,
    SideParameters,
)
from fusionscope.passes.rule import NO_OBJECTION, Decision, Rule, RuleBook


class GemmFusionV1(GemmFusion):
    def _grow(self, dot: MutableInstruction, name: str) -> Grown | Decision:
        growth = _Growth(self.book, self.state, dot, name)
        output = growth.fuse()
        rule = self.book.find(LoneDot.id)
        if isinstance(rule, LoneDot):
            refusal = rule.check(dot, growth.fused, self.state.device)
            if refusal is not None:
                growth.discard()
                return refusal
        fusion = add_gemm_fusion(dot, name, growth.fused, growth.inputs)
        return Grown(fusion, output, tuple(growth.asked))


class _Node:
    """An instruction, read in one way. ``is_fused`` is None until it is decided."""

    __slots__ = ("instruction", "is_fused", "operands", "order")

    def __init__(self, instruction: MutableInstruction, order: DimensionOrder) -> None:
        self.instruction = instruction
        self.order = order
        self.operands: list[_Node] = []
        self.is_fused: bool | None = None


class _Growth:
    """One growing fusion: ``inputs`` for its parameters, and the decisions that were ``asked``."""

    def __init__(
        self, book: RuleBook[Rule], state: GemmState, dot: MutableInstruction, name: str
    ) -> None:
        self._book = book
        self._state = state
        self._dot = dot
        self._split = NO_SPLIT
        rule = book.find(OrderedDimensions.id)
        self._following = rule.following if isinstance(rule, OrderedDimensions) else FOLLOWING
        extents = sizes(dot.operands[0].shape)
        self._summed = prod(extents[place] for place in dot.attribute("lhs_contracting_dims"))
        self.fused = dot.computation.module.add_computation(f"{name}_computation")
        self.inputs: list[MutableInstruction] = []
        self.asked: list[Asked] = []

    def fuse(self) -> MutableInstruction:
        """Form the fusion. Return its final result.

        Source: CreateDotFusion, FuseTowardUsers.
        """
        operands = [self._fuse_operand(slot) for slot in range(len(self._dot.operands))]
        last = self._add(self._dot, operands)
        output, order = self._dot, DimensionOrder.of_dot(self._dot.shape)
        side = DotSide(-1, 0 if self._split > 1 else -1, self._following, self._summed)
        while len(output.users) == 1:
            user = next(iter(output.users))
            propagated = self._around(
                OrderedCandidate(Neighbour.USER, user, user, output, order, side)
            )
            if propagated is None:
                break
            order = propagated.orders[user]
            operands = [
                last
                if operand is output
                else self._fuse_towards(operand, propagated.orders[operand], side, None)
                for operand in user.operands
            ]
            last, output = self._add(user, operands), user
        self.fused.root = last
        return output

    def discard(self) -> None:
        for instruction in reversed(list(self.fused.instructions)):
            self.fused.remove(instruction)

    def _fuse_operand(self, slot: int) -> MutableInstruction:
        """Source: FuseDotOperand, FusionContext::FromDotOperand."""
        side = ("lhs", "rhs")[slot]
        operand = self._dot.operands[slot]
        batch = self._dot.attribute(f"{side}_batch_dims") or ()
        contracting = self._dot.attribute(f"{side}_contracting_dims")
        summed = {*batch, *contracting}
        free = next((place for place in range(operand.shape.rank) if place not in summed), -1)
        splittable = free if slot == 0 and not batch else -1
        properties = DotSide(free, splittable, self._following, self._summed)
        order = DimensionOrder.of_dot(operand.shape)
        rule = self._book.find(SideParameters.id)
        limit = rule.limit if isinstance(rule, SideParameters) else None
        return self._fuse_towards(operand, order, properties, limit)

    def _around(self, candidate: OrderedCandidate) -> Propagated | None:
        """Return the orders of a user that joins the fusion and of its operands, or None."""
        user = candidate.instruction
        propagated = self._beyond(candidate)
        if isinstance(propagated, Propagated) and len(user.operands) > 1:
            order = propagated.orders[user]
            upwards = self._combined(propagate(user, order, candidate.side, up=True))
            if isinstance(upwards, Propagated):
                upwards = Propagated({**upwards.orders, user: order}, upwards.split)
            propagated = upwards
        return self._asked(candidate, propagated)

    def _beyond(self, candidate: OrderedCandidate) -> Propagated | Decision:
        """Return the orders beyond a candidate, or why it does not join the fusion."""
        refusal = find_refusal(self._book, candidate, self._state)
        return refusal or self._combined(candidate.propagated())

    def _combined(self, propagated: Propagated | str) -> Propagated | Decision:
        """Combine new requirements with those of the fusion, if possible."""
        split = (
            propagated
            if isinstance(propagated, str)
            else combine_splits(self._split, propagated.split)
        )
        if isinstance(propagated, str) or isinstance(split, str):
            return OrderedDimensions().refuse(str(split))
        self._split = split
        return propagated

    def _asked(
        self, candidate: OrderedCandidate, propagated: Propagated | Decision
    ) -> Propagated | None:
        is_operand = candidate.neighbour is Neighbour.OPERAND
        decision = propagated if isinstance(propagated, Decision) else NO_OBJECTION
        self.asked.append(Asked(candidate.instruction.name, decision, is_operand))
        return None if isinstance(propagated, Decision) else propagated

    def _fuse_towards(
        self, start: MutableInstruction, order: DimensionOrder, side: DotSide, limit: int | None
    ) -> MutableInstruction:
        """Absorb the operands of ``start``, transitively, with at most ``limit`` parameters.

        Source: BuildFusionPlanTowardOperands.
        """
        root = _Node(start, order)
        nodes: dict[tuple[MutableInstruction, Iteration], _Node] = {
            (start, order.iteration()): root
        }
        inputs = {root}
        pending = deque([root])
        deferred = 0
        while len(pending) > deferred:
            node = pending.popleft()
            instruction = node.instruction
            count = len(inputs) + added_parameters(instruction)
            if limit is not None and count > limit:
                pending.append(node)
                deferred += 1
                continue
            deferred = 0
            node.is_fused = False
            if instruction.opcode == "parameter":
                continue
            candidate = OrderedCandidate(
                Neighbour.OPERAND, instruction, instruction, None, node.order, side
            )
            propagated = self._asked(candidate, self._beyond(candidate))
            if propagated is None:
                continue
            inputs.remove(node)
            for operand in instruction.operands:
                operand_order = propagated.orders[operand]
                key = operand, operand_order.iteration()
                if key not in nodes:
                    nodes[key] = _Node(operand, operand_order)
                    inputs.add(nodes[key])
                    pending.append(nodes[key])
                node.operands.append(nodes[key])
            node.is_fused = True
        for node in pending:
            refusal = Decision(False, SideParameters.id, "", (("limit", limit or 0),))
            self.asked.append(Asked(node.instruction.name, refusal, is_operand=True))
        return self._build(root)

    def _build(self, root: _Node) -> MutableInstruction:
        """Source: BuildFusionTowardOperandsImpl."""
        copies: dict[_Node, MutableInstruction] = {}
        for node in post_order([root], lambda node: node.operands):
            if node.is_fused:
                operands = [copies[operand] for operand in node.operands]
                copies[node] = self._add(node.instruction, operands)
            else:
                copies[node] = self._parameter(node.instruction)
        return copies[root]

    def _add(
        self, original: MutableInstruction, operands: list[MutableInstruction]
    ) -> MutableInstruction:
        return self.fused.add(copy_with(self.fused, original, original.shape, operands))

    def _parameter(self, original: MutableInstruction) -> MutableInstruction:
        self.inputs.append(original)
        return self.fused.make_parameter(original.shape)
