"""Compares the module of a replay with that of the compiler."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

from msgspec import Struct

from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    backend_kind_of,
)
from fusionscope.graph.properties import EMBEDDING, has_side_effect
from fusionscope.grouping import Numbers
from fusionscope.history.thunks import NOT_LAUNCHED
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.attributes import read_attribute, split_attributes
from fusionscope.hlo.model import Statement
from fusionscope.hlo.shape import Layout, Shape

# Attributes with the name, the origin or the callees of an instruction rather than its meaning.
# Called computations are compared separately.
_NO_MEANING = frozenset(
    """backend_config body branch_computations called_computations calls condition
    control-predecessors false_computation frontend_attributes kind metadata origin scatter select
    sharding statistics to_apply true_computation""".split()
)
_ELEMENT_SIZE = re.compile(r"E\(\d+\)")


class Divergence(Struct, frozen=True, rename={"ours": "replay", "theirs": "compiler"}):
    """The first difference between two modules, in the order of the text.

    computation: the computation that it is in
    what: what differs: ``opcode``, ``shape``, ``operands``, ``kind of fusion`` …
    ours: the instruction that the replay has there; empty if it has none
    theirs: the instruction that the compiler has there; empty if it has none
    """

    computation: str
    what: str
    ours: str
    theirs: str


class Comparison:
    """Two modules, ``ours`` and ``theirs``, side by side. Neither is changed.

    Structure means the instructions and their operands, in order: opcodes, shapes, operands,
    attributes, literals, kinds of fusions and their contents. Names do not count, nor do
    instructions that nothing reads.
    """

    def __init__(self, ours: MutableModule, theirs: MutableModule) -> None:
        self._ours = ours
        self._theirs = theirs
        # Names in ``ours`` of the instructions of ``theirs``, up to the first difference.
        self._names: dict[str, str] = {}
        self._divergence: Divergence | None = None
        for place in _side_by_side([(ours.entry, theirs.entry)]):
            if place.what is not None:
                one, other = (
                    _words(place_of_one, place.what) for place_of_one in (place.ours, place.theirs)
                )
                self._divergence = Divergence(place.computation, place.what, one, other)
            elif place.ours is not None and place.theirs is not None:
                self._names[place.theirs.name] = place.ours.name

    def find_divergence(self) -> Divergence | None:
        """Return the first structural difference, from the entry on, or None."""
        return self._divergence

    def find_names(self) -> dict[str, str]:
        """Return the names in ``ours`` of the instructions of ``theirs``, up to the first
        difference, and of their users that nothing reads.
        """
        names = dict(self._names)
        matched = set(names.values())
        unread: dict[tuple[str, Shape, tuple[str, ...]], list[str]] = defaultdict(list)
        for instruction in self._ours.walk():
            if instruction.operands and not instruction.users and instruction.name not in matched:
                reads = tuple(operand.name for operand in instruction.operands)
                unread[instruction.opcode, instruction.shape, reads].append(instruction.name)
        for instruction in self._theirs.walk():
            if instruction.operands and not instruction.users and instruction.name not in names:
                reads = tuple(names.get(operand.name, "") for operand in instruction.operands)
                if candidates := unread[instruction.opcode, instruction.shape, reads]:
                    names[instruction.name] = candidates.pop(0)
        return names

    def has_same_kernels(self) -> bool:
        """Return whether both compute the same in the same kernels, apart from the order of outputs
        and of operands.

        A kernel is its kind and its contents, with each instruction as often as it is computed.
        """
        contents = _Contents()
        return contents.of(self._ours) == contents.of(self._theirs)


def compare(ours: Module | MutableModule, theirs: Module | MutableModule) -> Comparison:
    """Raises ``UnusableInput`` if one of the two contradicts itself."""
    return Comparison(_graph(ours), _graph(theirs))


def _graph(module: Module | MutableModule) -> MutableModule:
    return MutableModule(module) if isinstance(module, Module) else module


def find_divergence(
    ours: Module | MutableModule, theirs: Module | MutableModule
) -> Divergence | None:
    """Return the first structural difference of two modules, from the entry on, or None."""
    return compare(ours, theirs).find_divergence()


class _Place(NamedTuple):
    """The same place in two modules, in a computation of the other one; ``what`` differs there."""

    computation: str
    ours: MutableInstruction | None
    theirs: MutableInstruction | None
    what: str | None


def _side_by_side(pending: list[tuple[MutableComputation, MutableComputation]]) -> Iterator[_Place]:
    """Yield the places of pairs of computations, and of those that they call, up to the first that
    differs.
    """
    visited: set[tuple[MutableComputation, MutableComputation]] = set()
    while pending:
        left, right = pending.pop()
        if (left, right) in visited:
            continue
        visited.add((left, right))
        ours_order, theirs_order = _live(left), _live(right)
        same = dict(zip(ours_order, theirs_order, strict=False))
        for a, b in zip_longest(ours_order, theirs_order):
            what: str | None = "number of instructions"
            if a is not None and b is not None:
                what = _difference(a, b)
                if what is None and [same.get(operand) for operand in a.operands] != b.operands:
                    what = "operands"
                if what is None:
                    pending.extend(zip(a.called, b.called, strict=True))
            yield _Place(right.name, a, b, what)
            if what is not None:
                return


def is_same(ours: Module | MutableModule, theirs: Module | MutableModule) -> bool:
    """Return whether two modules compute the same in the same kernels, apart from the order of
    outputs and of operands. ``ours`` may be the graph that a pass has just left.
    """
    if isinstance(ours, MutableModule) and isinstance(theirs, Module) and _prints(ours, theirs):
        return True
    our_graph, their_graph = _graph(ours), _graph(theirs)
    compared = Comparison(our_graph, their_graph)
    is_same_graph = compared.find_divergence() is None or compared.has_same_kernels()
    for side, graph in ((ours, our_graph), (theirs, their_graph)):
        if graph is not side:
            graph.dissolve()
    return is_same_graph


def _prints(graph: MutableModule, module: Module) -> bool:
    """Return whether ``module`` lists the instructions of ``graph`` one by one in the order in
    which the compiler prints them, which most replays leave. Takes half as long as making a graph
    of ``module`` and comparing that.

    Raises ``UnusableInput`` like ``Module.check``.
    """
    module.check()
    pending = [(graph.entry, module.entry)]
    visited: set[tuple[MutableComputation, Computation]] = set()
    while pending:
        pair = pending.pop()
        if pair in visited:
            continue
        visited.add(pair)
        computation, printed = pair
        order, (statements, edges, root, _) = computation.post_order(), printed.graph
        shapes, by_name = printed.body.shapes, module.by_name
        if len(order) != len(statements) or order[root] is not computation.root:
            return False
        for instruction, statement, operands in zip(order, statements, edges, strict=True):
            if (
                instruction.opcode != statement.opcode
                or instruction.shape != shapes[statement.shape]
                or instruction.operands != [order[operand] for operand in operands]
                or (instruction.inside and instruction.inside != statement.inside)
                or not _does_as_printed(instruction, statement)
            ):
                return False
            if instruction.called:
                bodies = [by_name[name] for name in statement.calls]
                if len(bodies) != len(instruction.called):
                    return False
                pending.extend(zip(instruction.called, bodies, strict=True))
    return True


def _does_as_printed(instruction: MutableInstruction, statement: Statement) -> bool:
    text = statement.attributes
    if instruction.opcode == "fusion":
        kinds = (
            read_attribute(text, "kind"),
            backend_kind_of(read_attribute(text, "backend_config")),
        )
        if kinds != (instruction.fusion_kind, instruction.backend_kind):
            return False
    return text == instruction.attributes_text or (
        meaning_of(split_attributes(text)) == meaning(instruction)
    )


def has_equal_kernels(ours: Module, theirs: Module) -> bool:
    """Return whether two modules launch the same kernels, each equally often in the text, with
    outputs in the same order. Their operands and their place, such as in a loop that carries values
    in another order, do not count.
    """
    contents = _Contents()
    return contents.kernels(ours) == contents.kernels(theirs)


def has_equal_contents(first: MutableInstruction, second: MutableInstruction) -> bool:
    """Return whether two instructions with the same opcode, shape and operands do the same.

    Source: xla/hlo/ir/hlo_instruction.cc, IdenticalInternal.
    """
    return (
        first.inside.split() == second.inside.split()
        and (first.fusion_kind, first.backend_kind) == (second.fusion_kind, second.backend_kind)
        and first.attributes.get("backend_config") == second.attributes.get("backend_config")
        and meaning(first) == meaning(second)
        and len(first.called) == len(second.called)
        and all(
            place.what is None
            for place in _side_by_side(list(zip(first.called, second.called, strict=True)))
        )
    )


class _Contents:
    """Numbers of values: equal numbers for the same computation."""

    def __init__(self) -> None:
        self._numbers = Numbers()

    def of(self, graph: MutableModule) -> int:
        """Return the number of the entry's result."""
        numbers_of_bodies: dict[MutableComputation, int] = {}
        for computation in graph.post_order():
            numbers = self._instructions(computation, numbers_of_bodies)
            root = numbers[computation.root]
            numbers_of_bodies[computation] = self._numbers[root, *sorted(numbers.values())]
        return numbers_of_bodies[graph.entry]

    def kernels(self, module: Module) -> Counter[Hashable]:
        """Return the number of the contents of each launch, without its operands."""
        graph = MutableModule(module)
        numbers_of_bodies: dict[MutableComputation, int] = {}
        kernels: Counter[Hashable] = Counter()
        for computation in graph.post_order():
            numbers = self._instructions(computation, numbers_of_bodies)
            numbers_of_bodies[computation] = self._numbers[
                numbers[computation.root], *sorted(numbers.values())
            ]
            if computation.is_fused or any(c.opcode in EMBEDDING for c in computation.callers):
                continue
            for instruction in _live(computation):
                bodies = tuple(numbers_of_bodies[body] for body in instruction.called)
                if instruction.opcode == "fusion":
                    kernels[
                        instruction.fusion_kind,
                        instruction.backend_kind,
                        self._kernel(instruction, numbers_of_bodies),
                    ] += 1
                elif instruction.opcode not in NOT_LAUNCHED:
                    attributes = tuple(sorted(meaning(instruction).items()))
                    kernels[instruction.opcode, str(_shape(instruction)), bodies, attributes] += 1
        return kernels

    def _kernel(
        self, fusion: MutableInstruction, numbers_of_bodies: dict[MutableComputation, int]
    ) -> tuple[int, ...]:
        """Return a key of the contents of a fusion, with parameters in the order of first use."""
        arguments = [0] * len(fusion.operands)
        order = [
            instruction
            for instruction in fusion.fused.post_order()
            if instruction.opcode == "parameter"
        ]
        for place, each in enumerate(order):
            arguments[each.parameter_number] = self._numbers[place, str(_shape(each))]
        inside = self._instructions(fusion.fused, numbers_of_bodies, arguments)
        if fusion.is_multi_output:
            del inside[fusion.fused.root]
        return tuple(sorted(inside.values()))

    def _instructions(
        self,
        computation: MutableComputation,
        numbers_of_bodies: dict[MutableComputation, int],
        arguments: Sequence[int] | None = None,
    ) -> dict[MutableInstruction, int]:
        """Return the numbers of all live instructions. ``arguments`` are the operands of the
        fusion, for the computation of one.
        """
        numbers: dict[MutableInstruction, int] = {}
        outputs: dict[MutableInstruction, tuple[int, ...]] = {}
        for instruction in _live(computation):
            operands = tuple(
                self._numbers[numbers[operand], *outputs.get(operand, ())]
                for operand in instruction.operands
            )
            if instruction.opcode == "parameter" and arguments is not None:
                numbers[instruction] = arguments[instruction.parameter_number]
            elif instruction.opcode == "fusion" and not computation.is_fused:
                inside = self._instructions(instruction.fused, numbers_of_bodies, operands)
                kind = instruction.fusion_kind, instruction.backend_kind
                if instruction.is_multi_output:
                    outputs[instruction] = tuple(
                        inside[output] for output in instruction.fused.root.operands
                    )
                    del inside[instruction.fused.root]
                    root: Hashable = tuple(sorted(outputs[instruction]))
                else:
                    root = inside[instruction.fused.root]
                numbers[instruction] = self._numbers[kind, root, *sorted(inside.values())]
            elif instruction.opcode == "get-tuple-element" and instruction.operands[0] in outputs:
                source = instruction.operands[0]
                output = outputs[source][int(instruction.attributes["index"])]
                numbers[instruction] = self._numbers["output", numbers[source], output]
            else:
                literal = "".join(instruction.inside.split())
                does = (
                    instruction.opcode,
                    str(_shape(instruction)),
                    instruction.fusion_kind,
                    literal,
                )
                bodies = tuple(numbers_of_bodies[body] for body in instruction.called)
                attributes = tuple(sorted(meaning(instruction).items()))
                numbers[instruction] = self._numbers[
                    does, instruction.backend_kind, operands, bodies, attributes
                ]
        return numbers


def _shape(instruction: MutableInstruction) -> Shape:
    """Return the shape of an instruction, without the size of the element in the layout of a
    scalar. The compiler omits it when it reads a text, and makes the same code.
    """
    shape = instruction.shape
    if shape.dimensions or not shape.layout or shape.layout.element_size_in_bits is None:
        return shape
    properties = _ELEMENT_SIZE.sub("", shape.layout.properties)
    return replace(shape, layout=Layout((), properties) if properties else None)


def _live(computation: MutableComputation) -> list[MutableInstruction]:
    """Return all instructions but dead ones, such as constants that a pass put into fusions."""
    return [
        instruction
        for instruction in computation.post_order()
        if instruction.users
        or instruction.is_root
        or instruction.opcode == "parameter"
        or has_side_effect(instruction)
    ]


def _difference(first: MutableInstruction, second: MutableInstruction) -> str | None:
    if first.opcode != second.opcode:
        return "opcode"
    if first.shape != second.shape and _shape(first) != _shape(second):
        return "shape"
    if first.inside.split() != second.inside.split() and not (_is_cut(first) or _is_cut(second)):
        return "literal" if first.opcode == "constant" else "parameter number"
    if (first.fusion_kind, first.backend_kind) != (second.fusion_kind, second.backend_kind):
        return "kind of fusion"
    if first.is_root != second.is_root:
        return "root"
    if len(first.called) != len(second.called):
        return "called computations"
    if first.attributes_text != second.attributes_text:
        a, b = meaning(first), meaning(second)
        return next((f"{key}=" for key in {**a, **b} if a.get(key) != b.get(key)), None)
    return None


def _is_cut(instruction: MutableInstruction) -> bool:
    """Return whether the text lacks the contents of a large constant."""
    return instruction.opcode == "constant" and "{...}" in instruction.inside


def meaning(instruction: Instruction | MutableInstruction) -> dict[str, str]:
    """Return the attributes that say what an instruction does."""
    return meaning_of(instruction.attributes)


def meaning_of(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return those of ``attributes`` that say what an instruction does."""
    return {k: v for k, v in attributes.items() if k not in _NO_MEANING}


def _words(instruction: MutableInstruction | None, what: str) -> str:
    """Describe an instruction, with its attribute ``what`` if that is one, as ``index=``."""
    if instruction is None:
        return ""
    value = instruction.attributes.get(what[:-1]) if what.endswith("=") else None
    operands = ", ".join(operand.name for operand in instruction.operands)
    kind = f", kind={instruction.fusion_kind}" if instruction.fusion_kind else ""
    inside = instruction.inside or operands
    attribute = f", {what}{value}" if value is not None else ""
    return (
        f"{instruction.name} = {instruction.shape} {instruction.opcode}({inside}){kind}{attribute}"
    )
