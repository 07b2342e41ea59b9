"""Converts a fusion to a Triton fusion, for several passes."""

from __future__ import annotations

import json

from fusionscope.gpu.emitters import TRITON
from fusionscope.gpu.tiling.kernel import Tiling
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.attributes import cut_attributes


def set_triton_config(fusion: MutableInstruction, tiling: Tiling) -> None:
    """Make ``fusion`` a Triton fusion with ``tiling``, whatever its emitter was before."""
    config = {
        "fusion_backend_config": {
            "kind": TRITON,
            "block_level_fusion_config": {
                "num_warps": str(tiling.warps),
                "output_tiles": [
                    {"sizes": [str(size) for size in sizes]}
                    for sizes in (tiling.tile_sizes, *tiling.output_tiles)
                ],
                "num_ctas": 1,
                "num_stages": 1,
            },
        }
    }
    fusion.fusion_kind = "kCustom"
    set_config(fusion, json.dumps(config, separators=(",", ":")))


def set_config(fusion: MutableInstruction, config: str) -> None:
    """Make ``fusion`` a Triton fusion with this backend config."""
    fusion.backend_kind = TRITON
    pieces = [
        piece
        for piece in cut_attributes(fusion.attributes_text) or [f", calls=%{fusion.fused.name}"]
        if not piece.startswith((", kind=", ", backend_config="))
    ]
    fusion.set_attributes("".join([", kind=kCustom", *pieces, f", backend_config={config}"]))
