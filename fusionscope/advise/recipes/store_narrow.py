"""An argument that is only read in a narrower type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.loops import callee
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.aliasing import read_aliasing
from fusionscope.graph.mutable import (
    MutableInstruction,
    MutableModule,
    replace_and_prune,
    slots_of,
)
from fusionscope.hlo.attributes import split_attributes
from fusionscope.hlo.shape import Shape

_WIDE = frozenset({"f32", "f64"})
_NARROW = frozenset({"bf16", "f16"})
# They pass on the elements of their first operand.
_VIEWS = frozenset("broadcast copy dynamic-slice gather reshape reverse slice transpose".split())
_LAYOUT = "entry_computation_layout"


class StoreNarrow(Recipe):
    __slots__ = ()
    id: ClassVar = "store-narrow"
    title: ClassVar = "weights stored in the type in which they are read"
    what: ClassVar = (
        "An argument of `f32` is only read after a conversion to `bf16` or `f16`: as a whole, "
        "in slices, or layer by layer in a `scan`. The caller converts it once and passes the "
        "narrow array."
    )
    why: ClassVar = (
        "Each call reads all of the argument: as `bf16` these are half as many bytes. A decoding "
        "step that multiplies weights with few rows does little else."
    )
    backfires: ClassVar = (
        "Training that updates the argument needs it in its wide type: then only the call that "
        "evaluates gains. Both types in memory take half as much again."
    )
    backends: ClassVar = frozenset({"gpu", "tpu"})
    keeps_arguments: ClassVar = False
    example: ClassVar = Example(
        ("f32[8,1024,1024]", "bf16[8,1024]"),
        """
def program(weights, x):
    def layer(x, weight):
        return jnp.tanh(x @ weight.astype(jnp.bfloat16)), None

    return lax.scan(layer, x, weights)[0]
""",
        """
# The caller, once: weights = weights.astype(jnp.bfloat16)
def program(weights, x):
    def layer(x, weight):
        return jnp.tanh(x @ weight), None

    return lax.scan(layer, x, weights)[0]
""",
        arguments_after=("bf16[8,1024,1024]", "bf16[8,1024]"),
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        unavailable = _unavailable(graph)
        for parameter in graph.entry.parameters:
            is_wide = parameter.shape.element_type in _WIDE
            if is_wide and parameter.parameter_number not in unavailable:
                flow = _follow(parameter)
                if flow is not None and flow.type is not None:
                    yield Site(flow.conversions[0], partial(_store, graph, flow, flow.type))


def _unavailable(graph: MutableModule) -> set[int]:
    """Return the numbers of the parameters whose memory a result takes."""
    aliases = read_aliasing(graph.source.attributes.get("input_output_alias", ""))
    return {number for number, _, _ in aliases}


@dataclass(frozen=True, slots=True)
class _Flow:
    """Where a parameter goes: the ``values`` with its elements, also as the elements ``states`` of
    loops, each with its number, and the ``conversions`` that read them.
    """

    values: dict[MutableInstruction, None] = field(default_factory=dict)
    states: dict[tuple[MutableInstruction, int], None] = field(default_factory=dict)
    conversions: list[MutableInstruction] = field(default_factory=list)

    @property
    def type(self) -> str | None:
        """The one narrow type to which all conversions convert; None if there is no such."""
        types = {conversion.shape.element_type for conversion in self.conversions}
        return next(iter(types)) if len(types) == 1 and types <= _NARROW else None


def _follow(parameter: MutableInstruction) -> _Flow | None:
    """Return where ``parameter`` goes; None if anything but conversions reads its elements."""
    flow = _Flow()
    pending = [parameter]
    while pending:
        value = pending.pop()
        if value in flow.values:
            continue
        flow.values[value] = None
        if value.is_root:
            return None
        for user in value.users:
            further = _read_by(user, value, flow)
            if further is None:
                return None
            pending += further
    return flow


def _read_by(
    user: MutableInstruction, value: MutableInstruction, flow: _Flow
) -> list[MutableInstruction] | None:
    """Return what has the elements of ``value`` by way of ``user``; None if that computes with
    them.
    """
    if user.opcode == "convert":
        flow.conversions.append(user)
        return []
    slots = slots_of(user, value)
    if user.opcode in _VIEWS:
        return [user] if slots == [0] else None
    if user.opcode != "tuple":
        return None
    if user.is_root:  # of the body of a loop, which hands the element on
        is_handed_on = value.opcode == "get-tuple-element" and slots == [value.attribute("index")]
        return [] if is_handed_on and _is_state(value.operands[0]) else None
    (loop, *more) = user.users or [user]
    if loop.opcode != "while" or more or loop.is_root:
        return None
    elements: list[MutableInstruction] = []
    for index in slots:
        parts = _elements_of(loop, index)
        if parts is None:
            return None
        flow.states[loop, index] = None
        elements += parts
    return elements


def _is_state(value: MutableInstruction) -> bool:
    """Return whether ``value`` is the state in a loop."""
    callers = value.computation.callers
    return value.opcode == "parameter" and all(loop.opcode == "while" for loop in callers)


def _elements_of(loop: MutableInstruction, index: int) -> list[MutableInstruction] | None:
    """Return an element of the state of ``loop`` wherever it is read; None if a step changes it, or
    the state is read as a whole.
    """
    states = [loop, *(computation.parameters[0] for computation in loop.called)]
    roots = [callee(loop, "body").root]
    if roots[0].opcode != "tuple" or len(loop.called) != 2:
        return None
    result = roots[0].operands[index]
    if result.opcode != "get-tuple-element" or result.attribute("index") != index:
        return None
    elements = []
    for state in states:
        for user in state.users:
            if user.opcode != "get-tuple-element":
                return None
            if user.attribute("index") == index:
                elements.append(user)
    return elements if result in elements else None


def _store(graph: MutableModule, flow: _Flow, element_type: str) -> None:
    """Give all values of ``flow`` the type, and leave out its conversions."""
    for value in flow.values:
        value.shape = replace(value.shape, element_type=element_type)
    for loop, index in flow.states:
        computations = loop.called
        states = [computation.parameters[0] for computation in computations]
        for state in dict.fromkeys([loop, loop.operands[0], callee(loop, "body").root, *states]):
            state.shape = _with_element(state.shape, index, element_type)
    for conversion in flow.conversions:
        replace_and_prune(conversion, conversion.operands[0])
    attributes = split_attributes(graph.source.header)
    attributes.pop(_LAYOUT, None)  # that of the parameters is in their shapes
    header = "".join(f", {key}={text}" for key, text in attributes.items())
    graph.source = replace(graph.source, header=header)


def _with_element(shape: Shape, index: int, element_type: str) -> Shape:
    elements = list(shape.elements)
    elements[index] = replace(elements[index], element_type=element_type)
    return replace(shape, elements=tuple(elements))
