"""The rules for finished fusions that become Triton fusions instead of using XLA's own emitters.

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
    """A rule about one fusion."""

    __slots__ = ()

    @abstractmethod
    def check(self, fusion: MutableInstruction, state: GpuState) -> Decision | None:
        """Return a refusal, or None if the rule has no objection to the fusion."""


class BlockLevelDot(BlockLevelRule):
    __slots__ = ()
    id: ClassVar = "block-rewriter-dot"

    def check(self, fusion: MutableInstruction, state: GpuState) -> Decision | None:
        inside = (instruction.opcode for instruction in fusion.fused.instructions)
        return self.refuse() if any(opcode in ("dot", "scaled-dot") for opcode in inside) else None


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
        if (fusion.is_loop_fusion and _is_slow_transpose(root)) or (
            root.opcode == "reduce"
            and all(operand.shape.element_type == "s32" for operand in (root, *root.operands))
        ):
            return None
        return self.refuse(ends_in=root.opcode)


def _is_slow_transpose(root: MutableInstruction) -> bool:
    if root.opcode != "transpose":
        return False
    source = root.operands[0]
    form = normal_transpose(source.shape, root.shape, root.attribute("dimensions"))
    if form is None:
        return False
    permutation, last = form.permutation, len(form.permutation) - 1
    if last < 0 or permutation[permutation[last]] != last or permutation[last] >= last - 1:
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
