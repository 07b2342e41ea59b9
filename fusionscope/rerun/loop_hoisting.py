"""Replays the CPU pass that puts loops into calls, which are compiled as one piece.

Source: xla/service/cpu/small_while_loop_hoisting_pass.cc. The pass is meant for small loops, but
jaxlib 0.12 hoists loops of any size (measured: 70 of 70 loops, of up to 5 MB, without any of the
operations that it excludes) and leaves a few as they are (measured: the backward loop of a scan).
"""

from __future__ import annotations

from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule

_LEFT_ALONE = frozenset(
    """custom-call fft infeed outfeed partition-id replica-id scatter sort
    all-gather all-reduce all-to-all collective-permute reduce-scatter""".split()
)
_MARK = ', frontend_attributes={xla_cpu_small_call="true"}'


def hoist_loops(graph: MutableModule, hoisted: frozenset[str] | None = None) -> None:
    """Change ``graph`` as the pass does after the insertion of copies. ``hoisted`` are the loops
    that it put into calls in the dump, None if that is unknown: it leaves some as they are.
    """
    stay: dict[MutableComputation, bool] = {}
    for computation in graph.post_order():
        stay[computation] = any(
            instruction.opcode in _LEFT_ALONE
            or instruction.is_custom_fusion
            or any(stay[callee] for callee in instruction.called)
            for instruction in computation.instructions
        )
    loops = [
        loop
        for computation in graph.post_order()
        for loop in computation.instructions
        if loop.opcode == "while" and not any(stay[callee] for callee in loop.called)
    ]
    for loop in loops:
        if hoisted is None or len(hoisted) == len(loops) or loop.name in hoisted:
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
