"""The loops that the CPU compiler makes functions of: those without calls of its runtime.

Source: xla/service/cpu/small_while_loop_hoisting_pass.cc and dot_op_emitter.cc. The pass is meant
for small loops, but jaxlib 0.12 takes loops of any size, and leaves those with products and
convolutions that Eigen computes, which its source does not say.
"""

from __future__ import annotations

from dataclasses import replace

from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.history.loops import LoopFacts
from fusionscope.hlo.shape import Shape

_CALLS_RUNTIME = frozenset(
    """custom-call fft infeed outfeed partition-id replica-id scatter sort
    all-gather all-reduce all-to-all collective-permute reduce-scatter""".split()
)
_EIGEN = frozenset({"f16", "bf16", "f32", "f64", "c64", "c128", "s32"})
_COMPLEX = frozenset({"c64", "c128"})
_SMALL = 3  # the size up to which an operand of a product is small


def with_functions(loops: LoopFacts, graph: MutableModule, *, of_any_size: bool) -> LoopFacts:
    """Return the facts about the loops if ``graph`` is the module after fusion. ``of_any_size`` is
    whether the compiler makes functions of more than the loops that are small in the dump.
    """
    possible = frozenset(loop.name for loop in loops_for_functions(graph))
    return replace(loops, functions=possible if of_any_size else possible & loops.functions)


def loops_for_functions(graph: MutableModule) -> list[MutableInstruction]:
    """Return the loops that can become functions, after fusion."""
    calling: dict[MutableComputation, bool] = {}
    for computation in graph.post_order():
        calling[computation] = any(
            _calls_runtime(instruction) or any(calling[callee] for callee in instruction.called)
            for instruction in computation.instructions
        )
    return [
        loop
        for computation in graph.post_order()
        for loop in computation.instructions
        if loop.opcode == "while" and not any(calling[callee] for callee in loop.called)
    ]


def _calls_runtime(instruction: MutableInstruction) -> bool:
    if instruction.opcode == "dot":
        return _uses_eigen(instruction)
    if instruction.opcode == "convolution":
        return not instruction.computation.is_fused
    return instruction.opcode in _CALLS_RUNTIME or instruction.is_custom_fusion


def _uses_eigen(dot: MutableInstruction) -> bool:
    """Return whether neither a loop for vectors nor one for small matrices computes ``dot``."""
    element_type = dot.shape.element_type
    if element_type not in _EIGEN or 0 in (operand.shape.element_count for operand in dot.operands):
        return False
    batched = len(dot.attribute("lhs_batch_dims") or ())
    sizes = dot.shape.dimensions[batched:]
    is_vector = len(sizes) < 2 or 1 in sizes
    is_small = all(_is_small(operand.shape, batched) for operand in dot.operands)
    return element_type in _COMPLEX or not (is_vector or is_small)


def _is_small(matrix: Shape, batched: int) -> bool:
    sizes = matrix.dimensions[batched:]
    return len(sizes) < 2 or any(size is not None and size <= _SMALL for size in sizes)
