"""When the buffers of a module are alive, if its instructions run in a given order.

A value is an array, or the table of a tuple, that an instruction makes. A buffer holds values that
overwrite each other: an operand that is updated in place, or the state of a loop. Where the values
of one buffer would be alive at the same time the compiler makes a copy, and they get two buffers.

Sources: xla/hlo/utils/hlo_live_range.cc, xla/hlo/analysis/hlo_alias_analysis.cc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from fusionscope.graph.aliasing import in_place_operands, read_aliasing
from fusionscope.graph.buffer_sharing import part_of
from fusionscope.graph.buffers import CONTROL_FLOW, find_body
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.hlo.attributes import split_attributes
from fusionscope.hlo.shape import Shape
from fusionscope.hlo.views import SAME_MEMORY

POINTER = 8  # bytes of an entry in the table of a tuple

Order: TypeAlias = Mapping[MutableComputation, Sequence[MutableInstruction]]


class Place(NamedTuple):
    """The ``part`` of an instruction's result, an index into its tuple."""

    maker: MutableInstruction
    part: tuple[int, ...] = ()

    @property
    def shape(self) -> Shape:
        return part_of(self.maker.shape, self.part)

    @property
    def size(self) -> int:
        shape = self.shape
        return POINTER * len(shape.elements) if shape.is_tuple else shape.byte_size


class BufferKind(Enum):
    """What a buffer is for. ``given`` are parameters that the program must not overwrite, and
    constants; ``donated`` are parameters whose memory holds an output.
    """

    GIVEN = "given"
    DONATED = "donated"
    OUTPUT = "output"
    TEMPORARY = "temporary"


@dataclass(slots=True, eq=False)
class BufferLife:
    """A buffer of ``size`` bytes: the places where its values are made, and for each the first and
    the last time at which it is alive.
    """

    kind: BufferKind
    size: int
    makers: list[Place]
    ranges: list[tuple[int, int]]

    @property
    def first(self) -> int:
        return min(first for first, _ in self.ranges)

    @property
    def last(self) -> int:
        return max(last for _, last in self.ranges)


class Values:
    """The values of a module: where each is made, and which places are views of it."""

    def __init__(self, graph: MutableModule) -> None:
        self.graph = graph
        self.computations = _callees_first(graph)
        # Where each value is made, with all places where it is.
        self.made: dict[Place, list[Place]] = {}
        self._views: dict[Place, Place] = {}
        places = [
            Place(instruction, part)
            for computation in self.computations
            for instruction in computation.instructions
            for part in parts_of(instruction.shape)
        ]
        for place in places:
            source = _viewed(place)
            if source is not None:
                self._views[place] = source
        for computation in self.computations:
            for instruction in computation.instructions:
                if instruction.opcode == "while":
                    self._pass_through(instruction)
        for place in places:
            self.made.setdefault(self.made_at(place), []).append(place)

    def _pass_through(self, loop: MutableInstruction) -> None:
        """Find the state that a loop only reads: it remains the value from before the loop."""
        body = find_body(loop)
        for part in parts_of(loop.shape):
            state = Place(body.parameters[0], part)
            if part and self.made_at(Place(body.root, part)) == state:
                before = Place(loop.operands[0], part)
                self._views[state] = self._views[Place(loop, part)] = before
                self._views[Place(_condition(loop).parameters[0], part)] = before

    def made_at(self, place: Place) -> Place:
        """Return the place where the value at ``place`` is made."""
        while (source := self._views.get(place)) is not None:
            place = source
        return place

    def all_at(self, instruction: MutableInstruction) -> list[Place]:
        """Return the values in all parts of the result of an instruction."""
        return [self.made_at(Place(instruction, part)) for part in parts_of(instruction.shape)]


class LiveRanges:
    """The buffers of a module whose computations run in the given order.

    ``times`` are the places of instructions in the sequence, ``ranges`` the first and the last time
    at which each value is alive. ``length`` is the end of the program. ``buffers`` are by the place
    where their values are made.
    """

    def __init__(self, values: Values, order: Order) -> None:
        self.values = values
        self.times: dict[MutableInstruction, int] = {}
        self._spans: dict[MutableComputation, tuple[int, int]] = {}
        self._flatten(order)
        self.length = len(self.times)
        self.ranges: dict[Place, tuple[int, int]] = {}
        self._find_ranges()
        self.buffers: dict[Place, BufferLife] = {}
        self._find_buffers()

    def distinct_buffers(self) -> list[BufferLife]:
        return list(dict.fromkeys(self.buffers.values()))

    def _flatten(self, order: Order) -> None:
        """Give each instruction its time; those of loops and branches run before these."""
        pending: list[tuple[MutableComputation, int]] = [(self.values.graph.entry, 0)]
        began: dict[MutableComputation, int] = {self.values.graph.entry: 0}
        while pending:
            computation, step = pending.pop()
            instructions = order[computation]
            while step < len(instructions):
                instruction = instructions[step]
                inner = next((e for e in _run_by(instruction) if e not in began), None)
                if inner is not None:
                    pending += [(computation, step), (inner, 0)]
                    began[inner] = len(self.times)
                    break
                self.times[instruction] = len(self.times)
                step += 1
            else:
                self._spans[computation] = began[computation], len(self.times)

    def _find_ranges(self) -> None:
        """Find when each value is alive."""
        for value in self.values.made:
            time = self.times[value.maker]
            if value.maker.opcode == "parameter":
                time = self._spans[value.maker.computation][0]
            self.ranges[value] = time, time
        for instruction, time in self.times.items():
            end = self._spans[instruction.computation][1] if instruction.is_root else time
            end = max(end, self._done(instruction.computation))
            for value in self.values.all_at(instruction):
                self._extend(value, end)
            for place, used in self._uses(instruction):
                self._extend(self.values.made_at(place), used)

    def _done(self, computation: MutableComputation) -> int:
        """Return when a computation ends that runs asynchronously, 0 for others."""
        starts = [caller for caller in computation.callers if caller.opcode == "async-start"]
        ends = [self.times[user] for start in starts for user in start.users]
        return max(ends, default=0)

    def _extend(self, value: Place, end: int) -> None:
        first, last = self.ranges[value]
        self.ranges[value] = first, max(last, end)

    def _uses(self, instruction: MutableInstruction) -> Iterator[tuple[Place, int]]:
        """Yield what an instruction reads, and when."""
        opcode, time = instruction.opcode, self.times[instruction]
        if opcode == "call":  # what it calls reads the operands
            return
        if opcode == "while":
            time = self._spans[_condition(instruction)][0]
        for slot, operand in enumerate(instruction.operands):
            if opcode == "conditional" and slot:  # the branches read these
                continue
            is_viewed = opcode in ("bitcast", "get-tuple-element", "tuple")
            for part in [()] if is_viewed else parts_of(operand.shape):
                yield Place(operand, part), time

    def _find_buffers(self) -> None:
        entry = self.values.graph.entry
        header = split_attributes(self.values.graph.source.header)
        aliased = read_aliasing(header.get("input_output_alias", ""))
        donated = {Place(entry.parameters[slot], part) for slot, _, part in aliased}
        outputs = set(self.values.all_at(entry.root))
        for value, (first, last) in self.ranges.items():
            kind = BufferKind.OUTPUT if value in outputs else BufferKind.TEMPORARY
            if value in donated:
                kind = BufferKind.DONATED
            elif value.maker.opcode == "constant":
                kind = BufferKind.GIVEN
            elif value.maker.opcode == "parameter" and value.maker.computation is entry:
                kind, last = BufferKind.GIVEN, self.length
            self.ranges[value] = first, last
            self.buffers[value] = BufferLife(kind, value.size, [value], [(first, last)])
        for first_place, second_place in self._aliases():
            self._join(first_place, second_place)
        for slot, output, part in aliased:
            self._join(Place(entry.parameters[slot], part), Place(entry.root, output))

    def _aliases(self) -> Iterator[tuple[Place, Place]]:
        """Yield places that share a buffer, if nothing reads the old value later."""
        for instruction in self.times:
            opcode = instruction.opcode
            if opcode == "while":
                body, condition = find_body(instruction), _condition(instruction)
                for part in parts_of(instruction.shape):
                    yield Place(body.parameters[0], part), Place(instruction, part)
                    yield Place(condition.parameters[0], part), Place(instruction, part)
                    yield Place(body.root, part), Place(instruction, part)
                    yield Place(instruction.operands[0], part), Place(instruction, part)
            elif opcode == "conditional":
                for branch in instruction.called:
                    for part in parts_of(instruction.shape):
                        yield Place(branch.root, part), Place(instruction, part)
            else:
                for slot, output, part in in_place_operands(instruction):
                    yield Place(instruction.operands[slot], part), Place(instruction, output)

    def _join(self, first: Place, second: Place) -> None:
        """Let two values have one buffer if they are not alive at once. Else, one is copied."""
        a, b = self.buffers[self.values.made_at(first)], self.buffers[self.values.made_at(second)]
        if a is b or BufferKind.GIVEN in (a.kind, b.kind) or _overlap(a, b):
            return
        if len(a.makers) < len(b.makers):
            a, b = b, a
        a.kind = min(a.kind, b.kind, key=list(BufferKind).index)
        a.size = max(a.size, b.size)
        a.makers += b.makers
        a.ranges += b.ranges
        for maker in b.makers:
            self.buffers[maker] = a


def _overlap(first: BufferLife, second: BufferLife) -> bool:
    """Return whether both are alive at once, other than where one ends and the other begins."""
    return any(
        max(a, c) < min(b, d) or (a, b) == (c, d) for a, b in first.ranges for c, d in second.ranges
    )


def _callees_first(graph: MutableModule) -> list[MutableComputation]:
    """Return the computations whose instructions run one by one."""
    run = {graph.entry}
    for computation in reversed(graph.post_order()):
        if computation in run:
            run.update(callee for i in computation.instructions for callee in _run_by(i))
    return [computation for computation in graph.post_order() if computation in run]


def _run_by(instruction: MutableInstruction) -> Sequence[MutableComputation]:
    """Return the computations whose instructions run one by one when ``instruction`` runs."""
    if instruction.opcode == "while":
        return [_condition(instruction), find_body(instruction)]
    return instruction.called if instruction.opcode in _RUN else ()


_RUN = CONTROL_FLOW | {"async-start"}


def _condition(loop: MutableInstruction) -> MutableComputation:
    body = find_body(loop)
    return next(computation for computation in loop.called if computation is not body)


def parts_of(shape: Shape) -> list[tuple[int, ...]]:
    """Return the indices of a shape and of all shapes in it."""
    return [index for index, _ in shape.parts()]


def _viewed(place: Place) -> Place | None:
    """Return the place that another one is a view of; None if a value is made there."""
    instruction, index = place
    opcode = instruction.opcode
    if opcode == "tuple":
        return Place(instruction.operands[index[0]], index[1:]) if index else None
    if opcode == "get-tuple-element":
        number = int(instruction.attributes.get("index", "0"))
        return Place(instruction.operands[0], (number, *index))
    if opcode in SAME_MEMORY:
        return Place(instruction.operands[0], index)
    if opcode == "call":
        return Place(instruction.called[0].root, index)
    if opcode == "async-start" and index[:1] == (0,) and len(index) > 1:
        return Place(instruction.operands[index[1]], index[2:])
    if opcode == "async-start" and index[:1] == (1,):
        return Place(instruction.called[0].root, index[1:])
    if opcode in ("async-done", "async-update"):
        return Place(instruction.operands[0], (1, *index) if opcode == "async-done" else index)
    if opcode == "parameter":
        callers = list(instruction.computation.callers)
        if len(callers) == 1:
            caller, number = callers[0], instruction.parameter_number
            if caller.opcode in ("async-start", "call"):
                return Place(caller.operands[number], index)
            if caller.opcode == "conditional":
                branch = caller.called.index(instruction.computation)
                return Place(caller.operands[1 + branch], index)
    return None
