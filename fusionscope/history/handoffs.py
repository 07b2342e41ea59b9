"""Which values launches hand on to each other, across calls, loops and branches.

A place is where a value is: what a launch writes, a parameter or constant of the program, or what
one of several values is in turn: an element of the state of a loop, a result of a loop or branch.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from fusionscope.history.kernels import Kernel, Runs, is_launched
from fusionscope.history.operations import Value, flatten, keeps_layout
from fusionscope.history.values import Block, Execution, NumberedModule, control_of
from fusionscope.hlo import Computation, Instruction, Shape
from fusionscope.hlo.views import SAME_MEMORY

OUTSIDE = -1  # the maker of parameters and constants, and the reader of results

_STARTS = {  # the elements of their results that hold what they make
    "all-gather-start": 1,
    "async-start": 1,
    "collective-permute-start": 1,
    "copy-start": 0,
}
_PASSED_ON = SAME_MEMORY | {"async-update"}
_ACTING = frozenset({"infeed", "recv", "rng", "rng-get-and-update-state"})


class How(Enum):
    """How the value of a place comes from another place."""

    INIT = 0  # the state of a loop at first
    CARRIED = 1  # the state of a loop after a step
    AFTER = 2  # a result of a loop: its state after the last step
    BRANCH = 3  # a result of a conditional


class Source(NamedTuple):
    """The place that another place has its value from; ``loop`` is the number of the loop."""

    place: int
    how: How
    loop: int


class Origin(NamedTuple):
    """A place that a launch writes, or that is outside, and how many of its values pass from there
    to a reader in a run.
    """

    place: int
    instances: float


@dataclass(slots=True)
class Place:
    """``loops`` are those in whose steps the value differs."""

    maker: int
    shape: Shape
    name: str = ""
    sources: list[Source] = field(default_factory=list)
    loops: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LoopState:
    """A loop: its steps in one run of it, those in a run of the program, and the places of its
    state.
    """

    loop: Instruction
    steps: float
    runs: int
    state: Value


@dataclass(frozen=True, slots=True)
class Handoffs:
    """The places of a module.

    ``reads`` are, for each launch, its operands with their places, ``outputs`` the places that it
    writes. ``around`` are the loops around each launch, ``results`` the places of the results.
    ``acting`` are the launches whose results may differ though their operands do not.
    """

    places: list[Place]
    loops: list[LoopState]
    reads: list[list[tuple[Instruction, tuple[int, ...]]]]
    outputs: list[tuple[int, ...]]
    around: list[frozenset[int]]
    results: tuple[int, ...]
    acting: set[int]

    def repetitions(self, loops: frozenset[int]) -> float:
        """Return in how many combinations of their steps these loops are."""
        times = 1.0
        for loop in loops:
            times *= self.loops[loop].steps
        return times

    def origins(self, place: int) -> Iterator[Origin]:
        """Yield where the values at a place come from."""
        pending: list[tuple[int, frozenset[int], frozenset[int]]] = [
            (place, frozenset(), frozenset())
        ]
        visited = {place}
        while pending:
            current, last, later = pending.pop()
            sources = self.places[current].sources
            if not sources:
                yield Origin(current, self._instances(current, last, later))
            for source in sources:
                if source.place in visited:
                    continue
                visited.add(source.place)
                loop = frozenset({source.loop})
                pending.append(
                    (
                        source.place,
                        last | loop if source.how is How.AFTER else last,
                        later | loop if source.how is How.CARRIED else later,
                    )
                )

    def _instances(self, place: int, last: frozenset[int], later: frozenset[int]) -> float:
        """Return how many values a place has in a run, of which the ``last`` of a loop alone, or
        all but one, pass on.
        """
        loops = self.places[place].loops - last
        instances = self.repetitions(loops - later)
        for loop in loops & later:
            instances *= max(self.loops[loop].steps - 1, 0)
        return instances


def find_handoffs(
    numbered: NumberedModule, kernels: Sequence[Kernel], runs: Mapping[Hashable, Runs]
) -> Handoffs:
    """Return the places of a module, whose launches are ``kernels``, in their order."""
    finder = _Finder(numbered, kernels, runs)
    for execution in numbered.executions:
        finder.walk(execution)
    return finder.finish()


class _Frame:
    """A computation that is being walked through, with the values of its instructions so far."""

    __slots__ = ("arguments", "block", "values")

    def __init__(self, block: Block, arguments: Sequence[Value] | None) -> None:
        self.block = block
        self.arguments = arguments
        self.values: list[Value] = []


class _Finder:
    def __init__(
        self, numbered: NumberedModule, kernels: Sequence[Kernel], runs: Mapping[Hashable, Runs]
    ) -> None:
        self._numbered, self._runs = numbered, runs
        self._numbers: dict[tuple[Hashable, Instruction], deque[int]] = defaultdict(deque)
        for number, kernel in enumerate(kernels):
            self._numbers[kernel.path, kernel.instruction].append(number)
        self._places: list[Place] = []
        self._loops: list[LoopState] = []
        self._reads: list[list[tuple[Instruction, tuple[int, ...]]]] = [[] for _ in kernels]
        self._outputs: list[tuple[int, ...]] = [()] * len(kernels)
        self._around: list[frozenset[int]] = [frozenset()] * len(kernels)
        self._results: tuple[int, ...] = ()
        self._acting: set[int] = set()
        # What executions are given, the loops around them, and where their results go.
        self._given: dict[Hashable, Value] = {}
        self._loops_around: dict[Hashable, frozenset[int]] = {"entry": frozenset()}
        self._taken: dict[Hashable, tuple[Value, How, int]] = {}

    def walk(self, execution: Execution) -> None:
        path = execution.path
        argument = self._given.get(path)
        blocks: dict[Computation, deque[Block]] = defaultdict(deque)
        for block in execution.blocks:
            if block.inside is None:
                blocks[block.computation].append(block)
        frames = [_Frame(execution.blocks[-1], None if argument is None else (argument,))]
        while True:
            frame = frames[-1]
            computation = frame.block.computation
            edges = computation.graph.operands
            for instruction in computation.instructions[len(frame.values) :]:
                operands = [frame.values[edge] for edge in edges[instruction.index]]
                if instruction.opcode == "call" and blocks[instruction.called[0]]:
                    frames.append(_Frame(blocks[instruction.called[0]].popleft(), operands))
                    break
                frame.values.append(self._value(instruction, operands, frame, execution))
            else:
                frames.pop()
                result = frame.values[computation.graph.root]
                if not frames:
                    break
                frames[-1].values.append(result)
        self._end(path, result)

    def finish(self) -> Handoffs:
        handoffs = Handoffs(
            self._places,
            self._loops,
            self._reads,
            self._outputs,
            self._around,
            self._results,
            self._acting,
        )
        while sum(map(self._drop_unchanged, range(len(self._places)))):
            pass
        while sum(map(self._vary, self._places)):  # sets of loops only grow
            pass
        return handoffs

    def _drop_unchanged(self, number: int) -> bool:
        """Forget that a step hands on a state that it does not change."""
        sources = self._places[number].sources
        for source in sources:
            if source.how is How.CARRIED and self._same(source.place) == number:
                sources.remove(source)
                return True
        return False

    def _same(self, number: int) -> int:
        """Return the first place that has the value of a place all the time."""
        while len(sources := self._places[number].sources) == 1:
            place, how, _ = sources[0]
            if how is How.AFTER and len(self._places[place].sources) != 1:
                break
            number = place
        return number

    def _vary(self, place: Place) -> bool:
        """Take over the loops in whose steps the sources of a place differ."""
        loops = set(place.loops)
        for source in place.sources:
            more = self._places[source.place].loops
            if source.how is How.AFTER:
                more = more - {source.loop}
            elif source.how is How.CARRIED:
                more = more | {source.loop}
            loops |= more
        if place.maker != OUTSIDE:
            for _, operands in self._reads[place.maker]:
                for operand in operands:
                    loops |= self._places[operand].loops
        changed = len(loops) > len(place.loops)
        if changed:
            place.loops = frozenset(loops)
        return changed

    def _value(
        self,
        instruction: Instruction,
        operands: Sequence[Value],
        frame: _Frame,
        execution: Execution,
    ) -> Value:
        opcode = instruction.opcode
        if opcode == "parameter":
            slot = instruction.parameter_number or 0
            if frame.arguments is not None and slot < len(frame.arguments):
                return frame.arguments[slot]
        elif opcode == "tuple":
            return tuple(operands)
        elif opcode == "get-tuple-element":
            return _element(operands[0], int(instruction.attributes.get("index", "0")))
        elif opcode in ("while", "conditional"):
            value = frame.block.values[instruction.index]
            return self._enter(instruction, operands, execution.path, value)
        elif operands and (opcode in _PASSED_ON or opcode.endswith("-done")):
            return operands[0]
        elif is_launched(instruction) and self._numbers[execution.path, instruction]:
            number = self._numbers[execution.path, instruction].popleft()
            return self._launch(instruction, operands, execution.path, number)
        return self._outside(instruction.shape, instruction.name)

    def _outside(self, shape: Shape, name: str) -> Value:
        return self._new(shape, Place(OUTSIDE, shape, name))

    def _new(self, shape: Shape, pattern: Place) -> Value:
        """Return a new place for each array of a shape."""
        if shape.is_tuple:
            return tuple(self._new(element, pattern) for element in shape.elements)
        self._places.append(Place(pattern.maker, shape, pattern.name, loops=pattern.loops))
        return len(self._places) - 1

    def _launch(
        self, instruction: Instruction, operands: Sequence[Value], path: Hashable, number: int
    ) -> Value:
        """Return the places that the launch with this number writes."""
        around = self._around[number] = self._loops_around[path]
        if instruction.opcode in ("copy", "copy-start") and keeps_layout(instruction):
            return operands[0]  # the same value: a copy that nothing but the schedule needs
        self._reads[number] = [
            (operand, tuple(flatten(value)))
            for operand, value in zip(instruction.operands, operands, strict=True)
        ]
        shape = instruction.shape
        element = _STARTS.get(instruction.opcode)
        if element is not None and element < len(shape.elements):
            shape = shape.elements[element]
        if instruction.opcode in _ACTING or (
            "custom_call_has_side_effect=true" in instruction.statement.attributes
        ):
            self._acting.add(number)
        loops = around if number in self._acting else frozenset()
        value = self._new(shape, Place(number, shape, instruction.name, loops=loops))
        self._outputs[number] = tuple(flatten(value))
        return value

    def _enter(
        self, instruction: Instruction, operands: Sequence[Value], path: Hashable, value: Value
    ) -> Value:
        """Return the places of the results of a loop or conditional, which has this ``value``."""
        around = self._loops_around[path]
        control = control_of(value, self._numbered.controls)
        result = self._outside(instruction.shape, instruction.name)
        if instruction.opcode == "conditional":
            for number, _ in enumerate(instruction.called):
                inner = path, control, number
                self._given.setdefault(inner, operands[min(number + 1, len(operands) - 1)])
                self._loops_around.setdefault(inner, around)
                self._taken.setdefault(inner, (result, How.BRANCH, -1))
            return result
        loop = len(self._loops)
        state = self._outside(instruction.shape, instruction.name)
        self._link(state, operands[0], How.INIT, loop)
        body = instruction.attributes.get("body", "").lstrip("%")
        for number, callee in enumerate(instruction.called):
            inner = path, control, number
            self._given.setdefault(inner, state)
            self._loops_around.setdefault(inner, around | {loop})
            if callee.name == body:
                times = self._runs[inner].times if inner in self._runs else 0
                steps = times / max(self._runs[path].times, 1)
                self._loops.append(LoopState(instruction, steps, times, state))
                self._taken.setdefault(inner, (state, How.CARRIED, loop))
        if len(self._loops) == loop:
            self._loops.append(LoopState(instruction, 1, 1, state))
        self._link(result, state, How.AFTER, loop)
        return result

    def _end(self, path: Hashable, result: Value) -> None:
        if path == "entry":
            self._results = tuple(flatten(result))
        elif path in self._taken:
            target, how, loop = self._taken[path]
            self._link(target, result, how, loop)

    def _link(self, target: Value, source: Value, how: How, loop: int) -> None:
        """Let the places of a value have theirs from those of another."""
        for place, origin in zip(flatten(target), flatten(source), strict=False):
            if place != origin:
                self._places[place].sources.append(Source(origin, how, loop))


def _element(value: Value, index: int) -> Value:
    if isinstance(value, int):
        return value
    return value[index] if index < len(value) else ()
