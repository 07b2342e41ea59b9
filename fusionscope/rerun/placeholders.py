"""Calls that the compiler cannot inspect, in place of a plan's kernels.

The hook of the CPU compiler comes after fusion and after the pass that copies buffers that would be
overwritten too early, and it accepts no fusions from outside before that. A program of placeholders
passes through the compiler unchanged, and comes out with the copies that the plan needs. The
kernels then replace the placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from fusionscope.graph.aliasing import InPlace, in_place_operands
from fusionscope.graph.buffers import CONTROL_FLOW, find_body, find_steps, walk_control_flow
from fusionscope.graph.fusing import add_element
from fusionscope.graph.layouts import has_default_layout, reshape_is_bitcast
from fusionscope.graph.mutable import (
    CONTROL,
    MutableComputation,
    MutableInstruction,
    MutableModule,
    remove_unused,
    replace_operand,
    to_module,
)
from fusionscope.graph.properties import has_side_effect
from fusionscope.hlo import Module
from fusionscope.hlo.attributes import CALLS, read_metadata
from fusionscope.hlo.shape import TUPLE, Shape
from fusionscope.hlo.text import NAME
from fusionscope.hlo.views import RESHAPES
from fusionscope.passes.overrides import BARRIER

# Users that read a value through a bitcast of the plan.
_Views = dict[tuple[MutableInstruction, MutableInstruction], MutableInstruction]

TARGET = "fusionscope:"
# Where an instruction is from and where it runs. A result with a sharding would be copied.
_ORIGIN = ("metadata", "backend_config", "frontend_attributes", "sharding")
# Instructions that name values and move none. Every pass must see them.
NAMING = frozenset({"constant", "get-tuple-element", "parameter", "tuple"})
# Instructions that are recognised by their names: the text may leave out what constants contain.
_NAMED = CONTROL_FLOW | {"constant"}


def hide(module: Module) -> Module:
    """Return ``module`` with a placeholder for every instruction that computes, as a program for
    the compiler.

    Bitcasts that a placeholder reads are omitted. Raises ``UnusableInput`` if the module
    contradicts itself.
    """
    graph = MutableModule(module)
    for computation in walk_control_flow(graph):
        for instruction in computation.instructions:
            if instruction.opcode in CONTROL_FLOW | NAMING:
                instruction.attributes_text = _without_origin(instruction)
    updating = [step.name for step in find_steps(graph) if not in_place_operands(step)]
    put_placeholders(graph, lambda _: True)
    _keep_carried(graph)
    _return_last(graph, frozenset(updating))
    return replace(to_module(graph), frames=None)


def _keep_carried(graph: MutableModule) -> None:
    """Put barriers where the conversion to StableHLO changes what loops and branches are given.

    It takes each element that a loop carries unchanged out of the loop: a constant moves into the
    body, and equal elements become one. A branch is given what it reads, in the order in which it
    reads it, without what is constant or equal.
    """
    for computation in walk_control_flow(graph):
        for instruction in list(computation.instructions):
            if instruction.opcode == "while" and instruction.shape.is_tuple:
                body = find_body(instruction)
                for place, element in enumerate(list(body.root.operands)):
                    if _passes_on(instruction, place):
                        barrier = body.make(BARRIER, element.shape, [element])
                        replace_operand(body.root, element, barrier)
            elif instruction.opcode == "conditional":
                for operand in dict.fromkeys(instruction.operands[1:]):
                    if operand.opcode == "tuple":
                        barriers = [
                            computation.make(BARRIER, e.shape, [e]) for e in operand.operands
                        ]
                        fresh = computation.make("tuple", operand.shape, barriers)
                    else:
                        fresh = computation.make(BARRIER, operand.shape, [operand])
                    replace_operand(instruction, operand, fresh)
                for branch in instruction.called:
                    _read_at_once(branch)


def _read_at_once(branch: MutableComputation) -> None:
    """Have a barrier read all that a branch is given, before anything else reads it."""
    (parameter,) = branch.parameters
    readers = list(parameter.users)
    barrier = branch.make(BARRIER, parameter.shape, [parameter])
    for reader in readers:
        replace_operand(reader, parameter, barrier)


def _return_last(graph: MutableModule, updating: frozenset[str]) -> None:
    """Have a branch return what ``updating`` kernels write over its operands after all that reads
    it, as a copy of it would come.
    """
    branches = (
        branch
        for computation in walk_control_flow(graph)
        for conditional in list(computation.instructions)
        if conditional.opcode == "conditional"
        for branch in conditional.called
    )
    for branch in branches:
        parts: dict[MutableInstruction, None] = {}
        for result in branch.root.operands:
            readers = [user for user in result.users if user.opcode not in NAMING]
            if readers and _hidden_name(result) in updating:
                parts.update(dict.fromkeys([result, *readers]))
        if parts:
            together = branch.make("tuple", _tuple_of(*parts), list(parts))
            barrier = branch.make(BARRIER, together.shape, [together])
            for index, part in enumerate(parts):
                if part in branch.root.operands:
                    replace_operand(branch.root, part, add_element(barrier, index))


def _tuple_of(*parts: MutableInstruction) -> Shape:
    return Shape(TUPLE, elements=tuple(part.shape for part in parts))


def remove_barriers(graph: MutableModule) -> None:
    """Remove the barriers of a program of placeholders."""
    for computation in walk_control_flow(graph):
        for instruction in computation.post_order():
            if instruction.opcode == BARRIER:
                computation.replace(instruction, instruction.operands[0])
            elif instruction.opcode == "get-tuple-element":
                (source,) = instruction.operands
                if source.opcode == "tuple":
                    part = source.operands[int(instruction.attributes["index"])]
                    computation.replace(instruction, part)


def put_placeholders(graph: MutableModule, is_hidden: Callable[[MutableInstruction], bool]) -> None:
    """Replace each instruction that computes and ``is_hidden`` by a placeholder. Bitcasts come
    last: those that only placeholders read are removed, and of the others those that a reshape can
    express become one, since the compiler gives the result of a placeholder a buffer of its own.
    """
    steps = find_steps(graph)
    for computation in walk_control_flow(graph):
        order = computation.post_order()
        for instruction in sorted(order, key=lambda instruction: instruction.opcode == "bitcast"):
            if instruction.opcode in CONTROL_FLOW | NAMING or not is_hidden(instruction):
                continue
            if instruction.opcode == "bitcast" and not instruction.users:
                remove_unused(instruction)
            if instruction.parent is None:
                continue
            if _is_reshape(instruction):
                view = computation.make("reshape", instruction.shape, instruction.operands)
                computation.replace(instruction, view)
            else:
                aliases = in_place_operands(instruction) or steps.get(instruction, [])
                computation.replace(instruction, _placeholder(instruction, aliases))


def _is_reshape(instruction: MutableInstruction) -> bool:
    """Return whether it is a bitcast that the compiler makes of a reshape."""
    if instruction.opcode != "bitcast":
        return False
    source, result = instruction.operands[0].shape, instruction.shape
    return source.element_type == result.element_type and all(
        map(has_default_layout, (source, result))
    )


def _without_origin(instruction: MutableInstruction) -> str:
    """Return the attributes without origin. The compiler then sets the origin to the instruction's
    name, which identifies it later.
    """
    return _written(
        {key: value for key, value in instruction.attributes.items() if key not in _ORIGIN}
    )


def _written(attributes: dict[str, str]) -> str:
    return "".join(f", {key}={value}" for key, value in attributes.items())


def _placeholder(hidden: MutableInstruction, aliases: list[InPlace]) -> MutableInstruction:
    """Return a placeholder. ``aliases`` are the operands that it overwrites."""
    operands = list(map(_behind_bitcasts, hidden.operands))
    for slot, output, _ in aliases:
        operands[slot] = _as_overwritten(operands[slot], hidden, output)
    attributes = {
        "custom_call_target": f'"{TARGET}{hidden.name}"',
        "operand_layout_constraints": f"{{{', '.join(str(o.shape) for o in operands)}}}",
    }
    overwritten = [
        f"{{{_index(output)}}}: ({slot}, {{{_index(part)}}})" for slot, output, part in aliases
    ]
    if overwritten:
        attributes["output_to_operand_aliasing"] = f"{{{', '.join(overwritten)}}}"
    if has_side_effect(hidden):
        attributes["custom_call_has_side_effect"] = "true"
    name = hidden.computation.module.instruction_name(hidden.name)
    placeholder = MutableInstruction(
        name, "custom-call", hidden.shape, operands, _written(attributes)
    )
    return hidden.computation.add(placeholder)


def _as_overwritten(
    operand: MutableInstruction, hidden: MutableInstruction, output: tuple[int, ...]
) -> MutableInstruction:
    """Return ``operand`` in the shape of the result that overwrites it, as StableHLO requires."""
    overwritten = hidden.shape
    for index in output:
        overwritten = overwritten.elements[index]
    shape = operand.shape
    is_view = (
        shape.dimensions != overwritten.dimensions
        and shape.element_type == overwritten.element_type
    )
    if not is_view or not shape.is_array or not reshape_is_bitcast(shape, overwritten):
        return operand
    return hidden.computation.make("reshape", overwritten, [operand])


def _index(path: tuple[int, ...]) -> str:
    return ",".join(map(str, path))


def _behind_bitcasts(value: MutableInstruction) -> MutableInstruction:
    while value.opcode == "bitcast":
        (value,) = value.operands
    return value


def fill(received: Module, plan: Module) -> Module:
    """Return ``received``, the compiler's result for the placeholders of ``plan``, with the kernels
    of the plan in their places. Raises ``UnusableInput`` if it contradicts itself.
    """
    graph, planned = MutableModule(received), MutableModule(plan)
    originals = {
        instruction.name: instruction
        for c in walk_control_flow(planned)
        for instruction in c.instructions
    }
    names: dict[MutableInstruction, str] = {}
    for computation, planned_computation in _counterparts(graph, planned, originals):
        inside = planned_computation.instructions if planned_computation is not None else ()
        constants = {
            _content(instruction): instruction
            for instruction in inside
            if instruction.opcode == "constant"
        }
        for instruction in computation.instructions:
            if _hidden_name(instruction):
                continue
            if instruction.opcode == "constant":
                original = constants.pop(_content(instruction), None)
            else:
                original = originals.get(_origin(instruction))
            if original is not None and original.opcode != instruction.opcode:
                original = None
            _give_origin(instruction, original)
            if original is not None and original.opcode in _NAMED:
                names[instruction] = original.name
    _free_names(graph, dict.fromkeys(names.values()))
    for instruction, name in names.items():
        instruction.name = name
    remove_barriers(graph)
    replace_placeholders(graph, planned)
    return replace(to_module(graph), frames=plan.frames)


def replace_placeholders(graph: MutableModule, planned: MutableModule) -> None:
    """Replace the placeholders in ``graph`` by the instructions of ``planned``."""
    originals = {
        instruction.name: instruction
        for c in walk_control_flow(planned)
        for instruction in c.instructions
    }
    inner = _adopt(graph, planned)
    outer = list(walk_control_flow(graph))
    names = dict.fromkeys(
        name for c in outer for instruction in c.instructions if (name := _hidden_name(instruction))
    )
    _free_names(graph, names)
    for computation in outer:
        views: _Views = {}
        for instruction in computation.post_order():
            if name := _hidden_name(instruction):
                restored = _original(instruction, originals[name], inner, views)
                computation.replace(instruction, restored)


def _free_names(graph: MutableModule, names: Collection[str]) -> None:
    """Give other names to the instructions that have one of ``names``."""
    for name in names:
        graph.instruction_name(name)  # nothing else gets it
    for computation in walk_control_flow(graph):
        for instruction in computation.instructions:
            if instruction.name in names:
                instruction.name = graph.instruction_name(instruction.name)


def _hidden_name(instruction: MutableInstruction) -> str:
    """Return the name of the hidden instruction, or "" if it is not a placeholder."""
    target = instruction.attributes.get("custom_call_target", "").strip('"')
    return target.removeprefix(TARGET) if target.startswith(TARGET) else ""


def _adopt(
    graph: MutableModule, planned: MutableModule
) -> dict[MutableComputation, MutableComputation]:
    """Return copies in ``graph`` of the computations inside kernels, by those of ``planned``."""
    outer = set(walk_control_flow(planned))
    copies: dict[MutableComputation, MutableComputation] = {}
    for computation in planned.post_order():
        if computation in outer:
            continue
        copy = graph.add_computation(computation.name)
        copy.footer = computation.footer
        clones: dict[MutableInstruction, MutableInstruction] = {}
        for instruction in computation.post_order():
            operands = [clones[operand] for operand in instruction.operands]
            clones[instruction] = copy.add(_clone(instruction, operands, copies))
        copy.parameters.sort(key=lambda parameter: parameter.parameter_number)
        copy.root = clones[computation.root]
        copies[computation] = copy
    return copies


def _clone(
    original: MutableInstruction,
    operands: list[MutableInstruction],
    copies: dict[MutableComputation, MutableComputation],
) -> MutableInstruction:
    """Clone an instruction into another module. ``copies`` replace its called computations."""
    text = CONTROL.sub("", original.attributes_text)
    names = {computation.name: copies[computation].name for computation in original.called}
    if any(old != new for old, new in names.items()):
        text = "".join(
            f", {key}={_renamed(value, names) if key in CALLS else value}"
            for key, value in original.attributes.items()
            if key != "control-predecessors"
        )
    clone = MutableInstruction(
        original.name, original.opcode, original.shape, operands, text, original.inside
    )
    clone.called = [copies[computation] for computation in original.called]
    clone.fusion_kind, clone.backend_kind = original.fusion_kind, original.backend_kind
    return clone


def _renamed(value: str, names: dict[str, str]) -> str:
    return re.sub(NAME, lambda name: names.get(name[0], name[0]), value)


def _original(
    placeholder: MutableInstruction,
    original: MutableInstruction,
    inner: dict[MutableComputation, MutableComputation],
    views: _Views,
) -> MutableInstruction:
    """Return the instruction of a placeholder. ``views`` are the omitted bitcasts, recreated."""
    computation = placeholder.computation
    operands = []
    for operand, expected in zip(placeholder.operands, original.operands, strict=True):
        if operand.opcode in RESHAPES and operand.operands[0].shape == expected.shape:
            (operand,) = operand.operands
        if operand.shape != expected.shape:
            if (operand, expected) not in views:
                view = computation.make("bitcast", expected.shape, [operand], name=expected.name)
                views[operand, expected] = view
            operand = views[operand, expected]
        operands.append(operand)
    if original.opcode == "bitcast" and not (
        _is_only_a_result(placeholder) or _is_only_read(placeholder)
    ):
        # The compiler gave its result a new buffer.
        operands = [computation.make("copy", operands[0].shape, operands)]
    return computation.add(_clone(original, operands, inner))


def _is_only_a_result(view: MutableInstruction) -> bool:
    """Return whether the program's result alone holds the operand of ``view``, on its own."""
    (source,) = view.operands
    module = view.computation.module
    return (
        view.computation is module.entry
        and "input_output_alias" not in module.source.header
        and source.opcode not in CONTROL_FLOW | NAMING
        and not source.shape.is_tuple
        and len(source.users) == 1
        and all(user.opcode == "tuple" and user.is_root for user in view.users)
    )


def _is_only_read(view: MutableInstruction) -> bool:
    """Return whether ``view`` is of an argument that the program may not overwrite, and only loops
    have it that leave it as it is.
    """
    (source,) = view.operands
    module = view.computation.module
    return (
        source.opcode == "parameter"
        and source.computation is module.entry
        and "input_output_alias" not in module.source.header
        and not view.is_root
        and all(user.opcode == "tuple" and not user.is_root for user in view.users)
        and all(
            loop.opcode == "while" and _passes_on(loop, place)
            for user in view.users
            for place, operand in enumerate(user.operands)
            for loop in user.users
            if operand is view
        )
    )


def _passes_on(loop: MutableInstruction, place: int) -> bool:
    """Return whether the element at ``place`` of what ``loop`` carries stays the same."""
    root = find_body(loop).root
    if root.opcode != "tuple":
        return False
    passed = root.operands[place]
    is_element = passed.opcode == "get-tuple-element" and passed.attribute("index") == place
    return is_element and passed.operands[0].opcode == "parameter"


def _counterparts(
    graph: MutableModule, planned: MutableModule, originals: dict[str, MutableInstruction]
) -> Iterator[tuple[MutableComputation, MutableComputation | None]]:
    """Yield the computations that run instruction by instruction, with those of the plan as far as
    they are known.
    """
    counterparts = {graph.entry: planned.entry}
    for computation in walk_control_flow(graph):
        yield computation, counterparts.get(computation)
        for instruction in computation.instructions:
            if instruction.opcode in CONTROL_FLOW:
                original = originals.get(_origin(instruction))
                if original is not None and original.opcode == instruction.opcode:
                    counterparts.update(zip(instruction.called, original.called, strict=True))


def _content(constant: MutableInstruction) -> tuple[Shape, str]:
    return constant.shape, constant.literal


def _origin(instruction: MutableInstruction) -> str:
    """Return the name that an instruction had in the plan, as far as the compiler keeps it."""
    return read_metadata(instruction.attributes.get("metadata", "")).get("op_name", "")


def _give_origin(instruction: MutableInstruction, original: MutableInstruction | None) -> None:
    """Copy what the plan says of an instruction outside of kernels, such as trip counts."""
    pieces = {
        key: value
        for key, value in instruction.attributes.items()
        if key not in ("metadata", "frontend_attributes", "sharding")
    }
    if original is not None:
        for key in _ORIGIN:
            if key in original.attributes:
                pieces[key] = original.attributes[key]
    instruction.attributes_text = _written(pieces)
