"""Operations that a known defect of the compiler computes wrongly.

Each check compares the stages before and after a pass, and reports only what both prove.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fusionscope.dump import DumpedModule
from fusionscope.hlo import Computation, Instruction, Module

_REWRITER = "cublas-gemm-rewriter"
_TURNED_BIAS = (
    "{add} is computed wrongly: it adds an element of {bias} to each {meant} of the product, and "
    "the epilogue of {call} one to each {added} (openxla/xla#46897): "
    "update the compiler"
)


def find_miscompiled(module: DumpedModule, final: Module) -> Iterator[str]:
    """Yield a line for each operation. ``final`` is the final stage. Raises ``UnusableInput``."""
    calls = (i for computation in final.computations for i in computation.instructions)
    if not any(_has_bias(call) for call in calls):
        return
    for before, after in pairwise(module.stages):
        if after.name.after == _REWRITER:
            yield from _turned_biases(module.read(before), module.read(after))


def _has_bias(call: Instruction) -> bool:
    return call.opcode == "custom-call" and '"epilogue":"BIAS' in call.statement.attributes


def _turned_biases(before: Module, after: Module) -> Iterator[str]:
    """Yield vectors that a program broadcasts along the minor dimension of a product, and an
    epilogue along the major one. Before the rule was corrected, it compared only the length of the
    vector with the minor dimension: both are equal if the product is square.

    Source: GemmRewriterVisitor::FuseVectorBiasAdd, xla/backends/gpu/transforms/gemm_rewriter.cc.
    """
    for computation in after.computations:
        calls = {
            operand.name: call
            for call in computation.instructions
            if _has_bias(call)
            for operand in call.operands[2:]
        }
        if calls and computation.name in before.by_name:
            old = before.by_name[computation.name]
            names = {instruction.name for instruction in computation.instructions}
            yield from _turned(old, names, calls)


def _turned(
    computation: Computation, remaining: set[str], calls: dict[str, Instruction]
) -> Iterator[str]:
    """``remaining`` are the names of instructions after the pass."""
    for broadcast in computation.instructions:
        if broadcast.opcode != "broadcast" or broadcast.operands[0].name not in calls:
            continue
        vector = broadcast.operands[0]
        adds = [user for user in broadcast.users if user.opcode == "add"]
        layout = broadcast.shape.layout
        is_only_use = len(vector.users) == len(broadcast.users) == len(adds) == 1
        if not is_only_use or layout is None or broadcast.shape.rank != 2:
            continue
        if broadcast.name in remaining or adds[0].name in remaining:
            continue
        (dimension,) = broadcast.attribute("dimensions")
        minor = layout.minor_to_major[0]
        if int(dimension) != minor:
            words = ("row", "column") if minor == 1 else ("column", "row")
            yield _TURNED_BIAS.format(
                add=adds[0].name,
                bias=vector.name,
                call=calls[vector.name].name,
                meant=words[0],
                added=words[1],
            )
