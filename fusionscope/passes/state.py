"""The state of a run of instruction fusion that its rules read.

Source: xla/service/instruction_fusion.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import Use, operand_use
from fusionscope.passes.indexing import IndexingEvaluation


@dataclass(frozen=True, slots=True)
class FusionPair:
    """A pair: ``consumer`` reads ``producer`` in operand ``slot``."""

    producer: MutableInstruction
    consumer: MutableInstruction
    slot: int


class UnfusibleBy(NamedTuple):
    """The rule that keeps a producer from being duplicated, and its finding, in words."""

    rule: str
    because: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class FusionState:
    """One run of the pass over a module. Like the compiler's own state, it outlives single fusions.

    ``skipped`` are instructions that nothing is fused into, ``globally_unfusible`` those that must
    not be duplicated.
    """

    is_expensive: Callable[[MutableInstruction], bool]
    may_duplicate: bool = True
    skipped: frozenset[MutableInstruction] = frozenset()
    globally_unfusible: dict[MutableInstruction, UnfusibleBy] = field(default_factory=dict)
    _reused: dict[MutableInstruction, dict[MutableInstruction, None]] = field(default_factory=dict)
    _evaluations: dict[MutableInstruction, IndexingEvaluation] = field(default_factory=dict)

    def reused_operands(self, instruction: MutableInstruction) -> dict[MutableInstruction, None]:
        """Return the operands whose elements an instruction reads more than once, as of the first
        call.

        Source: ReusedOperandsOf.
        """
        reused = self._reused.get(instruction)
        if reused is None:
            reused = self._reused[instruction] = {
                operand: None
                for slot, operand in enumerate(instruction.operands)
                if operand_use(instruction, slot) is Use.REUSE
            }
        return reused

    def evaluation(self, fusion: MutableInstruction) -> IndexingEvaluation:
        """Return how often each part of ``fusion`` would be emitted."""
        evaluation = self._evaluations.get(fusion)
        if evaluation is None:
            evaluation = self._evaluations[fusion] = IndexingEvaluation(fusion)
        return evaluation

    def before_fusing(self, fusion: MutableInstruction, producer: MutableInstruction) -> None:
        """Source: UpdateReusedOperandsForFusion."""
        reused = self.reused_operands(fusion)
        if producer in reused:
            del reused[producer]
            reused.update(dict.fromkeys(producer.operands))
        else:
            reused.update(self.reused_operands(producer))
