"""Determines which pairs the compiler treats as the same when it asks for a tiling.

Source: xla/service/gpu/fusion_deduplication_cache.cc.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.grouping import Numbers

PairIdentity: TypeAlias = tuple[int, int, int, bool]

# Attributes that do not distinguish instructions. Called computations are compared separately.
NO_DIFFERENCE = frozenset(
    """calls control-predecessors frontend_attributes metadata origin sharding to_apply""".split()
)


class Identities:
    """Numbers that are equal for instructions that do the same with operands of the same shapes,
    whether or not they read one operand twice. A fusion formed since has the number of its parts.
    """

    def __init__(self) -> None:
        self._numbers = Numbers()
        self._known: dict[MutableInstruction, int] = {}

    def of_pair(
        self,
        producer: MutableInstruction,
        consumer: MutableInstruction,
        *,
        writes_producer: bool = False,
    ) -> PairIdentity:
        slot = consumer.operands.index(producer)
        return self._of(producer), self._of(consumer), slot, writes_producer

    def fused(self, fusion: MutableInstruction, pair: PairIdentity) -> None:
        """Record that ``pair`` became ``fusion``. Source: UpdateFusedInstructionId."""
        self._known[fusion] = self._numbers[pair]

    def _of(self, instruction: MutableInstruction) -> int:
        if instruction not in self._known:
            operands = tuple(operand.shape for operand in instruction.operands)
            self._known[instruction] = self._numbers[*self._operation(instruction), operands]
        return self._known[instruction]

    def _operation(self, instruction: MutableInstruction) -> tuple[Hashable, ...]:
        """Return a key of what an instruction does, apart from its operands."""
        attributes = tuple(
            (key, value)
            for key, value in instruction.attributes.items()
            if key not in NO_DIFFERENCE
        )
        bodies = tuple(self._body(computation) for computation in instruction.called)
        return instruction.opcode, instruction.shape, instruction.inside, attributes, bodies

    def _body(self, computation: MutableComputation) -> Hashable:
        """Return a key of what a computation does: how its root is computed, and its number of
        instructions.

        Values that are computed twice change only that number. Source:
        HloComputation::EqualInternal, HloFusionInstruction::HashAdditionalAttributes.
        """
        order = computation.post_order()
        numbers: dict[MutableInstruction, int] = {}
        for instruction in order:
            operands = tuple(numbers[operand] for operand in instruction.operands)
            numbers[instruction] = self._numbers[*self._operation(instruction), operands]
        return numbers[computation.root], len(order), len(computation.parameters)
