"""Replays the pass that inlines calls.

It forms no fusions, but leaves the users of a value in an order that no text shows and that later
passes depend on. Source: xla/service/call_inliner.cc.
"""

from __future__ import annotations

from collections.abc import Callable

from fusionscope.graph.cleanup import remove_dead
from fusionscope.graph.fusing import clone_into
from fusionscope.graph.mutable import MutableInstruction, MutableModule


def inline_calls(
    graph: MutableModule,
    name: Callable[[MutableInstruction, MutableInstruction], None] = lambda call, clone: None,
) -> None:
    """Inline every call, and remove what is dead then. ``name`` gets each call with each
    instruction that it leaves behind."""
    computations = graph.post_order()
    for computation in computations:
        for instruction in computation.post_order():
            if instruction.opcode == "call":
                for clone in _inline(instruction):
                    name(instruction, clone)
    remove_dead(graph)
    for computation in set(computations).difference(graph.post_order()):
        computation.dissolve()  # its loops are no callers of the bodies that their clones call


def _inline(call: MutableInstruction) -> list[MutableInstruction]:
    """Return what was cloned. Source: SubcomputationInsertionVisitor."""
    (callee,) = call.called
    clones: list[MutableInstruction] = []
    inlined = dict(zip(callee.parameters, call.operands, strict=True))
    for instruction in callee.post_order():
        if instruction.opcode != "parameter":
            operands = [inlined[operand] for operand in instruction.operands]
            inlined[instruction] = clone_into(instruction, call.computation, operands)
            clones.append(inlined[instruction])
    call.computation.replace(call, inlined[callee.root])
    return clones
