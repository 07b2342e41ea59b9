"""A module as a flow of values, independent of the fusions around its operations.

Fusions, their parameters, tuples and their elements compute nothing. They are transparent: an
operation reads the result of another operation, in the same fusion or not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fusionscope.history.meaning import is_commutative
from fusionscope.history.operations import TRANSPARENT, Value, flatten, is_passed_on
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.attributes import split_attributes
from fusionscope.hlo.model import Statement


@dataclass(slots=True, eq=False, kw_only=True)
class Region:
    """A computation that is executed instruction by instruction, with the fusions in it.

    ``operations`` lists operands before users, with their ``statements``. ``sources[i]`` holds the
    positions of the operations that operation ``i`` reads (for a tuple, of all its elements), and
    ``users[i]`` the positions of those that read it, with the index of the operand. ``outputs``
    maps an operation to its positions in the results. ``carried`` maps every instruction,
    transparent ones too, to the positions at which its value is computed. ``commutative``
    operations allow swapped operands. ``passed_on`` operations have the value of their first
    operand. ``idle`` operations are dead: no result depends on them. ``computations`` are the
    region's own and those of its fusions. ``callers`` are the instructions that call the latter,
    for computations with a single caller.
    """

    computation: Computation
    operations: list[Instruction] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    opcodes: list[str] = field(default_factory=list)
    sources: list[tuple[int, ...]] = field(default_factory=list)
    outputs: dict[int, set[int]] = field(default_factory=dict)
    carried: dict[Instruction, Value] = field(default_factory=dict)
    commutative: list[bool] = field(default_factory=list)
    passed_on: list[bool] = field(default_factory=list)
    idle: list[bool] = field(default_factory=list)
    computations: list[Computation] = field(default_factory=list)
    callers: dict[Computation, Instruction] = field(default_factory=dict)
    _users: list[list[tuple[int, int]]] = field(default_factory=list)

    @property
    def users(self) -> list[list[tuple[int, int]]]:
        if not self._users:
            self._users = [[] for _ in self.operations]
            for index, sources in enumerate(self.sources):
                for slot, source in enumerate(sources):
                    self._users[source].append((index, slot))
        return self._users

    def _finish(self) -> None:
        self.opcodes = [statement[3] for statement in self.statements]
        self.commutative = list(map(is_commutative, self.statements))
        self.passed_on = [  # a copy: the same elements in another order in memory
            bool(sources) and (opcode == "copy" or is_passed_on(opcode))
            for opcode, sources in zip(self.opcodes, self.sources, strict=True)
        ]
        for slot, output in enumerate(flatten(self.carried[self.computation.root])):
            self.outputs.setdefault(output, set()).add(slot)
        self.idle = idle = [True] * len(self.operations)
        for index in range(len(idle) - 1, -1, -1):
            if idle[index] and (index in self.outputs or self.opcodes[index] in ACTING):
                idle[index] = False
            if not idle[index]:
                for source in self.sources[index]:
                    idle[source] = False


# These have effects besides their result.
ACTING = frozenset(
    """all-gather-start all-reduce-start async-start call collective-permute-start conditional
    custom-call infeed outfeed parameter recv recv-done send send-done while""".split()
)


def find_regions(module: Module) -> dict[Computation, Region]:
    """Return every region of a module by its computation, in the order of the text.

    A computation called by a fusion, a call or the start of an asynchronous operation belongs to
    the caller's region. Any other computation is its own region. A computation with several callers
    is in the region once for each of them, unless that would make regions much larger than the
    module.
    """
    counts: Counter[str] = Counter()
    transparent: Counter[str] = Counter()
    for body in module.bodies:
        if not body.calls:
            continue
        calls: Counter[str] = Counter()
        for statement in body.written:
            if statement[3] in TRANSPARENT:
                calls.update(statement.calls[:1])
        counts.update({name: max(1, calls[name]) for name in body.calls})
        transparent.update(calls)
    inlined = {name for name, count in transparent.items() if counts[name] == count}
    shared = {name for name in inlined if counts[name] > 1}
    if shared and _inlined_size(module, inlined) > 2 * module.instruction_count:
        inlined -= shared
        shared = set()
    for body in reversed(module.bodies):  # computations that a shared one calls are shared as well
        if body.name in shared:
            shared |= inlined.intersection(body.calls)
    return {
        computation: _flow(computation, inlined, shared)
        for computation in module.computations
        if computation.name not in inlined
    }


def _inlined_size(module: Module, inlined: set[str]) -> int:
    """Return the number of instructions of all regions together, callees first."""
    sizes: dict[str, int] = {}
    for body in module.bodies:
        size = len(body.written)
        if not inlined.isdisjoint(body.calls):
            for statement in body.written:
                if statement[3] in TRANSPARENT:
                    size += sum(sizes.get(n, 0) for n in statement.calls[:1] if n in inlined)
        sizes[body.name] = size
    return sum(size for name, size in sizes.items() if name not in inlined)


class _Frame:
    """A computation whose instructions are being put into a region, with their ``values``."""

    __slots__ = ("arguments", "caller", "computation", "values")

    def __init__(
        self,
        computation: Computation,
        arguments: tuple[Value, ...] | None,
        caller: Instruction | None,
    ) -> None:
        self.computation = computation
        self.arguments = arguments
        self.caller = caller
        self.values: list[Value] = []


def _flow(computation: Computation, inlined: set[str], shared: set[str]) -> Region:
    region = Region(computation=computation)
    operations, added, sources = region.operations, region.statements, region.sources
    frames = [_Frame(computation, None, None)]
    while frames:
        frame = frames[-1]
        instructions, values = frame.computation.instructions, frame.values
        statements, edges, *_ = frame.computation.graph
        if not values:
            region.computations.append(frame.computation)
        for index in range(len(values), len(instructions)):
            statement = statements[index]
            opcode = statement[3]
            operands: tuple[Any, ...] = tuple([values[edge] for edge in edges[index]])
            if opcode in TRANSPARENT:
                callees = instructions[index].called
                if callees and callees[0].name in inlined:
                    if callees[0].name not in shared:
                        region.callers[callees[0]] = instructions[index]
                    frames.append(_Frame(callees[0], operands, instructions[index]))
                    break
            elif opcode == "tuple":
                values.append(operands)
                continue
            elif opcode == "get-tuple-element":
                whole = operands[0]
                if not isinstance(whole, int):
                    element = int(split_attributes(statement[5]).get("index", "0"))
                    if element < len(whole):
                        values.append(whole[element])
                        continue
            elif opcode == "parameter" and frame.arguments is not None:
                number = int(statement[4])
                if number < len(frame.arguments):
                    values.append(frame.arguments[number])
                    continue
            if tuple in map(type, operands):
                operands = tuple(flatten(operands))
            values.append(len(operations))
            operations.append(instructions[index])
            sources.append(operands)
            added.append(statement)
        else:
            frames.pop()
            region.carried.update(zip(instructions, values, strict=True))
            if frames:
                frames[-1].values.append(values[frame.computation.graph.root])
    region._finish()
    return region
