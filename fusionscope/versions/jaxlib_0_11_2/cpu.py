"""The fusion passes of jaxlib 0.11 for CPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.shape import Shape
from fusionscope.passes.cpu.instruction_fusion.rules import CPU_FUSION, Concatenate
from fusionscope.passes.cpu.library_fusion.rules import YNN, DataMove, Layout, TrailingMoves
from fusionscope.versions.jaxlib_0_12 import cpu as newer


@dataclass(frozen=True, slots=True)
class ConcatenateInElements(Concatenate):
    """The limit is in elements, whatever their size in bytes."""

    min_extent: int = 128

    def is_long(self, concatenate: MutableInstruction, extent: int) -> bool:
        return extent >= self.min_extent


class StrictLayout(Layout):
    """Dimensions of 1 must be in order too."""

    __slots__ = ()

    def is_row_major(self, shape: Shape) -> bool:
        order = shape.layout.minor_to_major if shape.layout else ()
        return list(order) == sorted(order, reverse=True)


CPU_FUSION_0_11 = CPU_FUSION.renamed("cpu-fusion-0.11").with_rule(ConcatenateInElements())
YNN_0_11 = (
    YNN.renamed("cpu-ynn-0.11")
    .without(TrailingMoves.id)
    .with_rule(DataMove(DataMove().operations - {"copy"}))
    .with_rule(StrictLayout())
)

COMPILER = replace(
    newer.COMPILER, name="cpu-0.11", release="0.11.2", makes_functions=False
).with_books(YNN_0_11, CPU_FUSION_0_11)
