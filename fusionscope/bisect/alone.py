"""Takes one kernel out of a module, and the values that it reads."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.bisect.fused_plan import FusedPlan, unfuse
from fusionscope.errors import UnusableInput
from fusionscope.graph.buffers import find_body
from fusionscope.graph.cleanup import remove_dead
from fusionscope.graph.fusing import add_element, clone_into
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    replace_operand,
    to_module,
)
from fusionscope.hlo import Module
from fusionscope.hlo.shape import TUPLE, Shape

NAME = "kernel"


def take_out(module: Module, fusion: str, plan: FusedPlan) -> tuple[Module, Module]:
    """Return two modules that compute only the kernel ``fusion`` of ``module``: with it, and with
    its operations unfused.
    """
    fused, unfused = _alone(module, fusion), _alone(module, fusion)
    (kernel,) = (
        instruction for instruction in unfused.entry.instructions if instruction.opcode == "fusion"
    )
    unfuse(kernel)
    return _named(plan.wrap(fused)), _named(plan.wrap(unfused))


def _alone(module: Module, fusion: str) -> MutableModule:
    graph = MutableModule(module)
    kernel = _find(graph, fusion)
    entry = graph.add_computation("main")
    parameters = [entry.make_parameter(operand.shape) for operand in kernel.operands]
    entry.root = clone_into(kernel, entry, list(parameters))
    graph.entry = entry
    if entry.root.shape.is_tuple:
        entry.root = _unpacked(entry, entry.root)
    return graph


def _named(graph: MutableModule) -> Module:
    return replace(to_module(graph), name=NAME, header="", frames=None)


def _find(graph: MutableModule, name: str) -> MutableInstruction:
    return next(instruction for instruction in graph.walk() if instruction.name == name)


def _unpacked(computation: MutableComputation, value: MutableInstruction) -> MutableInstruction:
    """Return a tuple of the elements of ``value``, a tuple."""
    elements = [add_element(value, index) for index in range(len(value.shape.elements))]
    return computation.make("tuple", value.shape, elements)


def read_operands(module: Module, fusion: str) -> Module:
    """Return a module with the parameters of ``module`` whose results are the operands of the
    kernel ``fusion``: inside of a loop, those of its last iteration.

    Raises ``UnusableInput`` if it is in a branch, which need not run.
    """
    graph = MutableModule(module)
    kernel = _find(graph, fusion)
    computation, values = kernel.computation, list(kernel.operands)
    while computation is not graph.entry:
        caller = next(iter(computation.callers))
        outside = caller.computation
        if caller.opcode == "while" and computation is find_body(caller):
            values = _out_of_loop(caller, values)
        elif caller.opcode == "call":
            values = _out_of_call(caller, values)
        else:
            raise UnusableInput(f"{fusion} is in a {caller.opcode}")
        computation = outside
    shape = Shape(TUPLE, elements=tuple(value.shape for value in values))
    computation.root = computation.make("tuple", shape, values)
    remove_dead(graph)
    return _named(graph)


def _out_of_loop(
    loop: MutableInstruction, values: list[MutableInstruction]
) -> list[MutableInstruction]:
    """Return the ``values`` of the last iteration, which are in the body of ``loop``, as values
    beside it. They become variables of the loop.
    """
    body, outside, old = find_body(loop), loop.computation, loop.shape
    shape = Shape(TUPLE, elements=(*old.elements, *(value.shape for value in values)))
    (initial,) = loop.operands
    starts = [_zeros(outside, value.shape) for value in values]
    before = [add_element(initial, index) for index in range(len(old.elements))]
    for computation in loop.called:
        (state,) = computation.parameters
        users = list(state.users)
        state.shape = shape
        if any(user.opcode != "get-tuple-element" for user in users):
            _narrow(state, old, users)
    elements = [add_element(body.root, index) for index in range(len(old.elements))]
    body.root = body.make("tuple", shape, [*elements, *values])
    loop_outside = outside.add(
        MutableInstruction(
            outside.module.instruction_name(loop.name),
            loop.opcode,
            shape,
            [outside.make("tuple", shape, [*before, *starts])],
            loop.attributes_text,
        )
    )
    loop_outside.called = list(loop.called)
    for callee in loop_outside.called:
        callee.callers[loop_outside] = None
    narrow = outside.make(
        "tuple", old, [add_element(loop_outside, index) for index in range(len(before))]
    )
    outside.replace(loop, narrow)
    return [add_element(loop_outside, len(before) + index) for index in range(len(values))]


def _narrow(state: MutableInstruction, old: Shape, users: list[MutableInstruction]) -> None:
    """Give ``users`` a tuple of the first elements of ``state``, of shape ``old``."""
    computation = state.computation
    elements = [add_element(state, index) for index in range(len(old.elements))]
    narrow = computation.make("tuple", old, elements)
    for user in users:
        replace_operand(user, state, narrow)
    if computation.root is state:
        computation.root = narrow


def _out_of_call(
    call: MutableInstruction, values: list[MutableInstruction]
) -> list[MutableInstruction]:
    """Return ``values``, which are in the computation of ``call``, as values beside it."""
    (callee,), outside = call.called, call.computation
    shape = Shape(TUPLE, elements=(call.shape, *(value.shape for value in values)))
    callee.root = callee.make("tuple", shape, [callee.root, *values])
    call_outside = outside.add(
        MutableInstruction(
            outside.module.instruction_name(call.name),
            call.opcode,
            shape,
            list(call.operands),
            call.attributes_text,
        )
    )
    call_outside.called = [callee]
    callee.callers[call_outside] = None
    outside.replace(call, add_element(call_outside, 0))
    return [add_element(call_outside, 1 + index) for index in range(len(values))]


def _zeros(computation: MutableComputation, shape: Shape) -> MutableInstruction:
    module = computation.module
    single = Shape(shape.element_type)
    name = module.instruction_name("zero")
    is_complex = shape.element_type.startswith("c")
    literal = "false" if shape.element_type == "pred" else "(0, 0)" if is_complex else "0"
    zero = computation.add(MutableInstruction(name, "constant", single, [], inside=literal))
    if not shape.dimensions:
        return zero
    return computation.make("broadcast", shape, [zero], ", dimensions={}")
