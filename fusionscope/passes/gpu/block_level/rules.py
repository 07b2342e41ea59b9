"""The rules on which finished fusions Triton emits instead of XLA's own emitters.

Source of all: xla/backends/gpu/transforms/fusion_block_level_rewriter.cc.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.state import GpuState
from fusionscope.gpu.tiling.kernel import Tiling
from fusionscope.gpu.tiling.search import Untileable, block_level_config
from fusionscope.gpu.triton_support import unsupported
from fusionscope.graph.layouts import minor_to_major, normal_transpose, sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.rule import Decision, Rule, RuleBook


class BlockLevelRule(Rule):
    """A rule on whether Triton emits a fusion. To refuse leaves it to XLA's own emitters."""

    __slots__ = ()

    @abstractmethod
    def check(self, fusion: MutableInstruction, state: GpuState) -> Decision | None:
        """Return a refusal, or None if the rule has no objection to the fusion."""


class BlockLevelDot(BlockLevelRule):
    __slots__ = ()
    id: ClassVar = "block-rewriter-dot"

    def check(self, fusion: MutableInstruction, state: GpuState) -> Decision | None:
        opcodes = {instruction.opcode for instruction in fusion.fused.instructions}
        return self.refuse() if opcodes & {"dot", "scaled-dot"} else None


class BlockLevelOutputs(BlockLevelRule):
    __slots__ = ()
    id: ClassVar = "block-rewriter-outputs"

    def check(self, fusion: MutableInstruction, state: GpuState) -> Decision | None:
        if not fusion.is_multi_output:
            return None
        return self.refuse(outputs=len(fusion.fused.root.operands))


class BlockLevelWorth(BlockLevelRule):
    __slots__ = ()
    id: ClassVar = "block-rewriter"

    def check(self, fusion: MutableInstruction, state: GpuState) -> Decision | None:
        root = fusion.fused.root
        if (fusion.is_loop_fusion and _is_slow_transpose(root)) or _is_integer_reduction(root):
            return None
        return self.refuse(ends_in=root.opcode)


class BlockLevelTransposeWorth(BlockLevelWorth):
    """Reductions stay with XLA's own emitters."""

    __slots__ = ()

    def check(self, fusion: MutableInstruction, state: GpuState) -> Decision | None:
        root = fusion.fused.root
        if root.opcode == "reduce":
            return self.refuse(ends_in=root.opcode)
        return BlockLevelWorth.check(self, fusion, state)


def _is_integer_reduction(root: MutableInstruction) -> bool:
    """Return whether ``root`` reduces 32-bit integers, as a rewritten dot of integers does.

    Source: ShouldRewriteReductionFusion.
    """
    values = (root, *root.operands)
    return root.opcode == "reduce" and all(value.shape.element_type == "s32" for value in values)


def _is_slow_transpose(root: MutableInstruction) -> bool:
    """Return whether ``root`` transposes a parameter so that the loop emitter is slow at it.

    The operand's innermost dimension changes places with one that is at least the third from the
    inside. A parameter may be seen through a bitcast whose innermost size is a power of two, which
    Triton needs. Source: ShouldRewriteLoopTransposeFusion.
    """
    if root.opcode != "transpose":
        return False
    source = root.operands[0]
    normal = normal_transpose(source.shape, root.shape, root.attribute("dimensions"))
    if normal is None:
        return False
    permutation, innermost = normal.permutation, len(normal.permutation) - 1
    if (
        innermost < 0
        or permutation[permutation[innermost]] != innermost
        or permutation[innermost] >= innermost - 1
    ):
        return False
    if source.opcode == "bitcast" and source.operands[0].opcode == "parameter":
        minor = sizes(source.shape)[minor_to_major(source.shape)[0]]
        return minor > 0 and minor & (minor - 1) == 0
    return source.opcode == "parameter"


class BlockLevelSupport(BlockLevelRule):
    __slots__ = ()
    id: ClassVar = "block-rewriter-support"
    is_legality: ClassVar = True

    def check(self, fusion: MutableInstruction, state: GpuState) -> Decision | None:
        message = unsupported(fusion, state.device, state.gpu_model.triton)
        return self.refuse(message) if message is not None else None


class BlockLevelDone(BlockLevelRule):
    __slots__ = ()
    id: ClassVar = "block-rewriter-done"

    def check(self, fusion: MutableInstruction, state: GpuState) -> Decision | None:
        config = block_level_config(fusion)
        return None if config is None else self.refuse(warps=config.warps)


class BlockLevelTiling(BlockLevelRule):
    __slots__ = ()
    id: ClassVar = "block-rewriter-tiling"
    is_legality: ClassVar = True

    def check(self, fusion: MutableInstruction, state: GpuState) -> Decision | None:
        tiling = self.find(fusion, state)
        return None if isinstance(tiling, Tiling) else self.refuse(tiling.message)

    def find(self, fusion: MutableInstruction, state: GpuState) -> Tiling | Untileable:
        return state.triton.find_best_tiling(FusionBody(fusion))


GPU_BLOCK_LEVEL: RuleBook[BlockLevelRule] = RuleBook(
    "gpu-block-level",
    "fusion-block-level-rewriter",
    "gpu",
    (
        BlockLevelDot(),
        BlockLevelOutputs(),
        BlockLevelWorth(),
        BlockLevelSupport(),
        BlockLevelDone(),
        BlockLevelTiling(),
    ),
)
