"""Replays the pass that gives finished fusions to Triton.

Source: xla/backends/gpu/transforms/fusion_block_level_rewriter.cc.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from fusionscope.hlo.attributes import cut_attributes
from fusionscope.replay.plan import Considered, FusionPlan
from fusionscope.rules.gpu.block_level import BlockLevelRule, BlockLevelTiling
from fusionscope.rules.gpu.emitters import TRITON
from fusionscope.rules.gpu.state import GpuState
from fusionscope.rules.gpu.tiling.kernel import Tiling
from fusionscope.rules.graph import MutableInstruction, MutableModule
from fusionscope.rules.rule import Decision, RuleBook

_NO_OBJECTION = Decision(True, "none")


@dataclass(slots=True)
class FusionBlockLevelRewriter:
    """The pass, as it runs over ``graph`` under the rules of ``book``."""

    graph: MutableModule
    book: RuleBook[BlockLevelRule]
    state: GpuState

    def run(self) -> FusionPlan:
        decisions: list[Considered] = []
        tilers = (rule for rule in self.book if isinstance(rule, BlockLevelTiling))
        tiler = next(tilers, BlockLevelTiling())  # no fusion can be given to Triton without
        for fusion in list(self.graph.walk()):
            if fusion.opcode == "fusion":
                checks = (rule.check(fusion, self.state) for rule in self.book)
                decision = next(filter(None, checks), _NO_OBJECTION)
                if decision.allow:
                    tiling = tiler.find(fusion, self.state)
                    if isinstance(tiling, Tiling):
                        _give_to_triton(fusion, tiling)
                    else:
                        decision = tiler.refuse(tiling.message)
                decisions.append(
                    Considered(
                        fusion.computation.name,
                        fusion.name,
                        fusion.name,
                        decision,
                        fusion.name if decision.allow else None,
                        is_recorded=False,
                    )
                )
        return FusionPlan(self.book.pass_name, tuple(decisions), self.graph)


def _give_to_triton(fusion: MutableInstruction, tiling: Tiling) -> None:
    config = {
        "fusion_backend_config": {
            "kind": TRITON,
            "block_level_fusion_config": {
                "num_warps": str(tiling.warps),
                "output_tiles": [{"sizes": [str(size) for size in tiling.tile_sizes]}],
            },
        }
    }
    fusion.fusion_kind, fusion.backend_kind = "kCustom", TRITON
    kept = [
        piece
        for piece in cut_attributes(fusion.attributes_text) or [f", calls=%{fusion.fused.name}"]
        if not piece.startswith((", kind=", ", backend_config="))
    ]
    written = json.dumps(config, separators=(",", ":"))
    fusion.attributes_text = "".join([", kind=kCustom", *kept, f", backend_config={written}"])
