"""Replays the CPU pass that puts loops into calls, which are compiled as one piece.

Source: xla/service/cpu/small_while_loop_hoisting_pass.cc.
"""

from __future__ import annotations

from fusionscope.graph.loop_functions import loops_for_functions
from fusionscope.graph.mutable import MutableInstruction, MutableModule

_MARK = ', frontend_attributes={xla_cpu_small_call="true"}'


def hoist_loops(graph: MutableModule) -> None:
    """Change ``graph`` as the pass does after the insertion of copies."""
    for loop in loops_for_functions(graph):
        _hoist(loop)


def _hoist(loop: MutableInstruction) -> None:
    outer = loop.computation
    inside = outer.module.add_computation(f"{loop.name}_computation")
    parameter = inside.make_parameter(loop.operands[0].shape)
    name = outer.module.instruction_name(loop.name)
    clone = MutableInstruction(name, "while", loop.shape, [parameter], loop.attributes_text)
    clone.called = list(loop.called)
    inside.root = inside.add(clone)
    name = outer.module.instruction_name("call")
    text = f", to_apply=%{inside.name}{_MARK}"
    call = MutableInstruction(name, "call", loop.shape, list(loop.operands), text)
    call.called = [inside]
    outer.replace(loop, outer.add(call))
