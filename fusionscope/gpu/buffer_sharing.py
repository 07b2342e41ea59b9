"""Whether a kernel of a GPU may write its result over an operand that nothing reads later."""

from __future__ import annotations

from fusionscope.dump.device import Device
from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.emitters import Emission, EmitterKind, Emitters, emission_of
from fusionscope.gpu.reductions import is_reduction_hero
from fusionscope.graph import buffer_sharing
from fusionscope.graph.buffer_sharing import is_elementwise_on, part_of
from fusionscope.graph.memory_reuse import Sharing
from fusionscope.graph.mutable import MutableInstruction, slots_of
from fusionscope.graph.properties import is_effective_scalar, is_elementwise
from fusionscope.hlo.search import reachable


def sharing_on(device: Device, emitters: Emitters) -> Sharing:
    """Return ``may_share`` for the kernels of ``device``.

    Source: xla/service/gpu/alias_info.cc, FusionCanShareBufferHint.
    """

    def may_share(
        operand: MutableInstruction, user: MutableInstruction, index: tuple[int, ...]
    ) -> bool:
        if user.opcode != "fusion" or operand.opcode == "constant":
            return buffer_sharing.may_share(operand, user, index)
        result = part_of(user.shape, index)
        if operand.shape != result and not (
            operand.shape.is_array
            and result.is_array
            and operand.shape.element_count == result.element_count
            and operand.shape.bits == result.bits
        ):
            return False
        emission = emission_of(FusionBody(user), device, emitters)
        return _Paths(user, slots_of(user, operand)[0], index, emission, device).may_share()

    return may_share


class _Paths:
    """What a fusion computes from one of its parameters."""

    def __init__(
        self,
        fusion: MutableInstruction,
        slot: int,
        index: tuple[int, ...],
        emission: Emission,
        device: Device,
    ) -> None:
        self.fusion, self.index = fusion, index
        self.parameter = fusion.fused.parameters[slot]
        output = fusion.fused.root
        for number in index:
            if output.opcode != "tuple":
                break
            output = output.operands[number]
        self.output = output
        self.source = output.operands[0] if output.opcode == "bitcast" else output
        self.roots = list(zip(emission.roots, emission.heroes, strict=True))
        self.reduction: MutableInstruction | None = None
        if emission.kind is EmitterKind.REDUCTION:  # computes reductions before all else
            heroes = (hero for root, hero in self.roots if is_reduction_hero(root, hero, device))
            self.reduction = next(heroes, None)

    def may_share(self) -> bool:
        reached: set[MutableInstruction] = set()
        for value in reachable([self.parameter], self._readers):
            reached.add(value)
            if not all(self._keeps_order(value, user) for user in self._readers(value)):
                return False
        return self.output in reached and self._others_keep_order(reached)

    def _readers(self, value: MutableInstruction) -> list[MutableInstruction]:
        return [] if value is self.reduction else value.users

    def _keeps_order(self, value: MutableInstruction, user: MutableInstruction) -> bool:
        """Return whether ``user`` reads ``value`` before the result overwrites it."""
        source, slots = self.source, slots_of(user, value)
        if user is source and user.opcode == "scatter":
            count = len(user.shape.elements) or 1
            if slots[0] < count and len(slots) == 1:
                return True
        if user is source and user.opcode == "sort" and len(slots) == 1:
            return self.index == (slots[0],)
        if (
            source.opcode == "dynamic-update-slice"
            and user.opcode == "dynamic-slice"
            and source.operands[0] is user.operands[0]
            and user.shape == source.operands[1].shape
        ):
            return is_effective_scalar(user.shape) or user.operands[1:] == source.operands[2:]
        if user.opcode in ("bitcast", "tuple") or user is self.reduction:
            return True
        if user.opcode != "copy" and is_elementwise_on(user, value):
            return True
        return user is source and user.opcode == "dynamic-update-slice" and slots[0] == 1

    def _others_keep_order(self, visited: set[MutableInstruction]) -> bool:
        reached = [(root, hero) for root, hero in self.roots if root in visited]
        if not self.fusion.is_multi_output or all(root is self.output for root, _ in reached):
            return True
        return is_elementwise(self.source) and not any(
            hero.opcode in ("copy", "transpose") for _, hero in reached
        )
