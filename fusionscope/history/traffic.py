"""Counts the bytes that launches read and write.

Each element that the kernel touches counts once: of an operand that is read in part (slice,
dynamic-slice, gather, with views and elementwise operations in between) only that part, and of a
buffer that is updated in place only the update.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from fusionscope.grouping import Numbers
from fusionscope.history.operations import Value, flatten, is_view
from fusionscope.history.regions import Region, count_elements, read_for, sizes, union, whole
from fusionscope.hlo import Computation, Instruction, Shape
from fusionscope.hlo.opcodes import BINARY, UNARY
from fusionscope.hlo.search import reachable

_INLINED = frozenset({"async-start", "call", "fusion"})
_UPDATES = frozenset({"dynamic-update-slice", "scatter"})
_SENDING = frozenset({"all-gather-start", "collective-permute-start", "copy-start"})
_HARMLESS = UNARY | BINARY | {"bitcast", "clamp", "select"}  # allowed beside an update in place
# Attributes that no byte depends on.
_NO_DIFFERENCE = re.compile(r", (?:metadata=\{[^{}]*\}|to_apply=%?[\w.\-]+)")


class Traffic(NamedTuple):
    """The bytes that one launch reads and writes.

    ``operands`` maps each operand to the bytes read of it; several may be views of one buffer.
    ``updated`` holds the operands that the launch updates in place.
    """

    read: int
    written: int
    operands: dict[Instruction, int]
    updated: frozenset[Instruction]


class _Node(NamedTuple):
    """An instruction that a launch executes or, without operands, a value that it is given."""

    instruction: Instruction
    operands: tuple[Value, ...] = ()


class _Code:
    """The instructions that a launch executes, with fusions inlined. Operands precede
    their users. At first it has only what the launch is given.
    """

    def __init__(self, launch: Instruction) -> None:
        self.nodes: list[_Node] = []
        self.given: dict[Instruction, int] = {}
        operands = launch.operands
        for operand in operands:
            self._give(operand)
        self.outside = len(self.nodes)
        self.launch = launch
        self.inlined = launch.called[:1] if launch.opcode in _INLINED else ()
        self.roots: list[int] = []
        self._arguments = tuple([self.given[operand] for operand in operands])
        self.aliased = _aliased_results(launch)

    def form(self) -> Hashable:
        """Return everything that the bytes depend on, but for the contents of ``inlined``."""
        forms = [self._form(*node) for node in self.nodes]
        launch_form = None if self.inlined else self._form(self.launch, self._arguments)
        return self.launch.opcode, launch_form, self._arguments, tuple(forms), self.aliased

    def _form(self, instruction: Instruction, operands: tuple[Value, ...]) -> Hashable:
        _, _, shape, opcode, inside, attributes = instruction.statement
        literal = inside if opcode == "constant" else ""
        if not operands and instruction is not self.launch:
            return shape, literal
        contents = instruction.computation.module.contents
        callees = [contents[operand.name] for operand in instruction.called]
        graph = instruction.computation.graph
        read = [graph.statements[operand].shape for operand in graph.operands[instruction.index]]
        attributes = _NO_DIFFERENCE.sub("", attributes) if attributes else ""
        return opcode, shape, literal, attributes, tuple(callees), tuple(read), operands

    def complete(self) -> None:
        """Add what the launch executes."""
        if self.inlined:
            result = self._inline(self.inlined[0], self._arguments)
        else:
            result = self._add(self.launch, self._arguments)
        self.roots = list(flatten(result))

    def _add(self, instruction: Instruction, operands: tuple[Value, ...]) -> int:
        self.nodes.append(_Node(instruction, operands))
        return len(self.nodes) - 1

    def _give(self, operand: Instruction) -> None:
        """Add an operand after the buffer that it is a view of."""
        views: list[Instruction] = []
        while operand not in self.given and is_view(operand):
            views.append(operand)
            operand = operand.operands[0]
        if operand not in self.given:
            self.given[operand] = self._add(operand, ())
        for view in reversed(views):
            self.given[view] = self._add(view, (self.given[operand],))
            operand = view

    def _inline(self, computation: Computation, arguments: tuple[Value, ...]) -> Value:
        frames: list[tuple[Computation, tuple[Value, ...], list[Value]]]
        frames = [(computation, arguments, [])]
        while True:
            computation, arguments, values = frames[-1]
            edges = computation.graph.operands
            for instruction in computation.instructions[len(values) :]:
                operands = tuple(values[edge] for edge in edges[instruction.index])
                if instruction.opcode in _INLINED and instruction.called:
                    frames.append((instruction.called[0], operands, []))
                    break
                values.append(self._value(instruction, operands, arguments))
            else:
                frames.pop()
                result = values[computation.graph.root]
                if not frames:
                    return result
                frames[-1][2].append(result)

    def _value(
        self, instruction: Instruction, operands: tuple[Value, ...], arguments: tuple[Value, ...]
    ) -> Value:
        opcode = instruction.opcode
        if opcode == "parameter":
            number = instruction.parameter_number or 0
            if number < len(arguments):
                return arguments[number]
        elif opcode == "tuple":
            return operands
        elif opcode == "get-tuple-element" and isinstance(operands[0], tuple):
            return operands[0][int(instruction.attributes["index"])]
        return self._add(instruction, operands)

    def operand(self, place: int, slot: int) -> int:
        return next(flatten(self.nodes[place].operands[slot]))

    def opcode(self, place: int) -> str:
        return self.nodes[place].instruction.opcode

    def update(self, place: int, slot: int = 0) -> Instruction:
        """Return the instruction that an update writes into operand ``slot``."""
        operands = self.nodes[place].instruction.operands
        return operands[(len(operands) + 1) // 2 + slot if self.opcode(place) == "scatter" else 1]

    def buffer(self, update: int) -> int:
        """Return the buffer that an update writes into, before views inside the launch."""
        place = self.operand(update, 0)
        while place >= self.outside and self.opcode(place) == "bitcast":
            place = self.operand(place, 0)
        return place

    def users(self) -> list[list[int]]:
        """Return the users of each value inside the launch."""
        users: list[list[int]] = [[] for _ in self.nodes]
        for place, node in enumerate(self.nodes[self.outside :], self.outside):
            for operand in dict.fromkeys(source for o in node.operands for source in flatten(o)):
                users[operand].append(place)
        return users

    def start(self, place: int, slot: int) -> Hashable:
        """Return the value of an operand that is a known number, or else a key of its value."""
        source = self.operand(place, slot)
        literal = self.nodes[source].instruction.literal
        is_number = literal is not None and literal.lstrip("-").isdecimal()
        return int(literal) if literal is not None and is_number else ("value", source)


class _Counted(NamedTuple):
    """The bytes that launches of one form read and write. ``operands`` are those read of each value
    that they are given, ``updated`` the places of the values that they update.
    """

    read: int
    written: int
    operands: Sequence[int]
    updated: Sequence[int]


def traffic(launch: Instruction) -> Traffic:
    """Return the bytes that one launch reads and writes, each element of an operand once."""
    cache: dict[Hashable, Traffic] = launch.computation.cache("traffic")
    if launch.index not in cache:
        cache[launch.index] = _traffic(launch)
    return cache[launch.index]


def _traffic(launch: Instruction) -> Traffic:
    """A model repeats its layers, so the bytes of launches that are alike are counted once."""
    code = _Code(launch)
    alike: dict[Hashable, _Counted]
    if code.inlined:
        alike = code.inlined[0].shared_cache("bytes")
    else:
        alike = launch.computation.cache("bytes")
    form = code.form()
    amounts = alike.get(form)
    if amounts is None:
        amounts = alike[form] = _count(code)
    return Traffic(
        amounts.read,
        amounts.written,
        {operand: amounts.operands[place] for operand, place in code.given.items()},
        frozenset([code.nodes[place].instruction for place in amounts.updated]),
    )


def _count(code: _Code) -> _Counted:
    code.complete()
    launch, names = code.launch, Numbers()
    regions_read: list[list[Region]] = [[] for _ in code.nodes]
    updates = _updates_in_place(code)
    results = [] if updates else code.roots
    if not updates and code.aliased:
        updates, results = _updates_of_aliased(code)
    bytes_written = sum(_update(code, update, regions_read, names) for update in updates)
    bytes_written += sum(code.nodes[root].instruction.shape.byte_size for root in results)
    for root in results:
        regions_read[root].append(whole(code.nodes[root].instruction.shape))
    read, operands_read = 0, [0] * code.outside
    for place in reversed(range(len(code.nodes))):
        instruction, operands = code.nodes[place]
        shape = instruction.shape
        regions = union(regions_read[place], shape, names)
        size = 0
        if place < code.outside:
            size = operands_read[place] = _size(shape, regions)
        if not operands:
            if instruction.opcode == "constant" and shape.element_count > 1:
                size = _size(shape, regions)
            read += size
        elif regions:
            parts = read_for(regions, instruction, partial(code.start, place), names)
            for operand, part in zip(operands, parts, strict=True):
                if isinstance(operand, int):
                    regions_read[operand] += part
                    continue
                for source in flatten(operand):
                    regions_read[source].append(whole(code.nodes[source].instruction.shape))
    return _Counted(
        read,
        _sent(launch) if launch.opcode in _SENDING else bytes_written,
        operands_read,
        [code.buffer(update) for update in updates],
    )


def _size(shape: Shape, regions: Sequence[Region]) -> int:
    """Return the bytes of regions of an array; of a tuple, those of all its arrays."""
    if not regions:
        return 0
    elements = whole(shape).elements
    if shape.is_tuple or not elements:
        return shape.byte_size
    return -(-shape.byte_size * count_elements(regions, shape) // elements)


def _sent(launch: Instruction) -> int:
    """Return what the start of a copy or collective writes: its result also holds the operand."""
    if launch.opcode == "copy-start":
        return launch.operands[0].shape.byte_size
    return sum(shape.byte_size for shape in launch.shape.elements[1:2])


def _updates_in_place(code: _Code) -> tuple[int, ...]:
    """Return the operations by which a launch writes into its operands; none if it writes all
    results.

    Source: xla/codegen/ir_emission_utils.cc, IsDynamicUpdateSliceFusion and
    CanEmitFusedDynamicUpdateSliceInPlace; for scatters xla/backends/gpu/codegen/fusions.cc.
    """
    updates: dict[int, None] = {}
    for root in code.roots:
        place = root
        while place >= code.outside and code.opcode(place) in ("bitcast", "get-tuple-element"):
            place = code.operand(place, 0)
        if place < code.outside or code.opcode(place) not in _UPDATES:
            return ()
        updates[place] = None
    if not updates:
        return ()
    is_scatter = any(code.opcode(update) == "scatter" for update in updates)
    if is_scatter and len(updates) > 1:
        return ()
    users = code.users()
    shapes = {sizes(code.update(update).shape) for update in updates}
    if len(shapes) == 1 and all(_is_in_place(code, update, users) for update in updates):
        return tuple(updates)
    return ()


def _updates_of_aliased(code: _Code) -> tuple[tuple[int, ...], list[int]]:
    """Return the slices that a launch writes into results that are operands, too, and its other
    results.
    """
    updates, results = [], []
    for number, root in enumerate(code.roots):
        place = root
        while place >= code.outside and code.opcode(place) == "bitcast":
            place = code.operand(place, 0)
        is_update = place >= code.outside and code.opcode(place) == "dynamic-update-slice"
        if is_update and number in code.aliased and code.buffer(place) < code.outside:
            updates.append(place)
        else:
            results.append(root)
    return tuple(updates), results


def _aliased_results(launch: Instruction) -> frozenset[int]:
    """Return which results are operands, too: the compiler for TPUs says so of fusions, with the
    numbers of an operand and, after all operands, of a result.
    """
    if launch.opcode != "fusion" or '"indices"' not in launch.statement.attributes:
        return frozenset()
    config = launch.attribute("backend_config")
    aliases = config.get("aliasing_operands") if isinstance(config, Mapping) else None
    lists = aliases.get("lists") if isinstance(aliases, Mapping) else None
    count = len(launch.operands)
    return frozenset(
        int(index) - count
        for alias in (lists if isinstance(lists, list | tuple) else ())
        for index in (alias.get("indices", ()) if isinstance(alias, Mapping) else ())
        if isinstance(index, str) and index.isdecimal() and int(index) >= count
    )


def _is_in_place(code: _Code, update: int, users: Sequence[Sequence[int]]) -> bool:
    """Return whether an update writes into an operand of the launch, and no other read of it can
    hit places that are already overwritten.
    """
    target, buffer = code.operand(update, 0), code.buffer(update)
    if buffer >= code.outside:
        return False
    if code.opcode(update) == "scatter":
        return True
    last = update
    while readers := users[last]:
        if len(readers) > 1 or code.opcode(readers[0]) != "bitcast":
            return False
        last = readers[0]
    update_shape = code.update(update).shape
    places = [code.start(update, slot) for slot in range(2, len(code.nodes[update].operands))]

    def reads_in_place(reader: int) -> bool:
        if code.opcode(reader) != "dynamic-slice" or code.operand(reader, 0) != target:
            return code.opcode(reader) in _HARMLESS
        slots = range(1, len(code.nodes[reader].operands))
        same = places == [code.start(reader, slot) for slot in slots]
        shape = code.nodes[reader].instruction.shape
        return sizes(shape) == sizes(update_shape) and (same or update_shape.element_count == 1)

    reached = reachable([buffer], lambda value: [user for user in users[value] if user != update])
    return all(reader == buffer or reads_in_place(reader) for reader in reached)


def _update(code: _Code, place: int, regions_read: list[list[Region]], names: Numbers) -> int:
    """Record the reads of an in-place update. Return the bytes that it writes."""
    instruction, operands = code.nodes[place]
    updated = (len(operands) - 1) // 2 if instruction.opcode == "scatter" else 1
    for operand in operands[updated:]:
        for source in flatten(operand):
            regions_read[source].append(whole(code.nodes[source].instruction.shape))
    bytes_written = 0
    for slot in range(updated):
        buffer, update = instruction.operands[slot].shape, code.update(place, slot).shape
        bytes_written += min(buffer.byte_size, update.byte_size)
        if instruction.opcode == "scatter" and not _overwrites(instruction):
            elements = min(whole(buffer).elements, whole(update).elements)
            regions_read[code.operand(place, slot)].append(
                Region(elements, None, names[place, slot])
            )
    return bytes_written


def _overwrites(scatter: Instruction) -> bool:
    """Return whether a scatter overwrites its places without reading them."""
    roots = scatter.called[0].root if scatter.called else None
    number = roots.parameter_number if roots is not None else None
    return number is not None and number >= (len(scatter.operands) - 1) // 2
