"""Replays the pass that inlines calls.

It forms no fusions, but leaves the users of a value in an order that no text shows and that later
passes depend on. Source: xla/service/call_inliner.cc.
"""

from __future__ import annotations

from fusionscope.graph.fusing import clone_into
from fusionscope.graph.mutable import MutableInstruction, MutableModule, remove_dead


def inline_calls(graph: MutableModule) -> None:
    """Inline every call, and remove the dead instructions that this leaves."""
    for computation in graph.post_order():
        for instruction in computation.post_order():
            if instruction.opcode == "call":
                _inline(instruction)
    remove_dead(graph)


def _inline(call: MutableInstruction) -> None:
    """Source: SubcomputationInsertionVisitor."""
    (called,) = call.called
    inlined = dict(zip(called.parameters, call.operands, strict=True))
    for each in called.post_order():
        if each.opcode != "parameter":
            operands = [inlined[operand] for operand in each.operands]
            inlined[each] = clone_into(each, call.computation, operands)
    call.computation.replace(call, inlined[called.root])
