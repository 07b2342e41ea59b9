"""The operations that fusion emitters can compute element by element.

Source: xla/codegen/emitters/elemental_hlo_to_mlir.cc, IsSupportedElementalOp.
"""

from __future__ import annotations

_NOT_ELEMENTWISE = frozenset(
    """add-dependency after-all all-gather all-gather-done all-gather-start all-reduce
    all-reduce-done all-reduce-start all-to-all async-done async-start async-update batch-norm-grad
    batch-norm-inference batch-norm-training call cholesky collective-permute
    collective-permute-done collective-permute-start conditional copy-done copy-start custom-call
    domain dynamic-reshape fft fusion get-dimension-size infeed opt-barrier outfeed partition-id
    recv recv-done reduce-scatter replica-id rng rng-bit-generator rng-get-and-update-state scatter
    select-and-scatter send send-done set-dimension-size sort stochastic-convert topk
    triangular-solve while""".split()
)


def is_emitted_elementwise(opcode: str) -> bool:
    return opcode not in _NOT_ELEMENTWISE
