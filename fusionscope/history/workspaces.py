"""The memory that a library call works in: a result that nothing reads.

Sources: xla/backends/gpu/transforms: gemm_rewriter.cc, conv_rewriter.cc, cudnn_norm_rewriter.cc,
cudnn_fusion_compiler.cc, sort_rewriter.cc, triangular_solve_rewriter.cc.
"""

from __future__ import annotations

from fusionscope.hlo import Instruction

_BYTES = ("s8", "u8")


def workspace_bytes(call: Instruction) -> int:
    """Return the bytes of the workspace of a library ``call``, the last of its results; 0 if it has
    none. The library neither reads them from its caller nor returns them.
    """
    results = call.shape.elements
    if len(results) < 2 or results[-1].element_type not in _BYTES or results[-1].rank != 1:
        return 0
    return 0 if call.is_root or _is_read(call, len(results) - 1) else results[-1].byte_size


def _is_read(call: Instruction, index: int) -> bool:
    elements = [user for user in call.users if user.opcode == "get-tuple-element"]
    return len(elements) < len(call.users) or any(
        element.attribute("index") == index and (element.users or element.is_root)
        for element in elements
    )
