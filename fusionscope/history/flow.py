"""A module as values flow through it, whatever fusions stand around the operations.

A fusion, its parameters, tuples and their elements compute nothing: they are looked through, so
that an operation reads what another one computed, in the same fusion or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from fusionscope.history.operations import TRANSPARENT
from fusionscope.hlo import Computation, Instruction, Module
from fusionscope.hlo.attributes import split_attributes

# The position of an operation, or one for each element of a tuple that is taken apart.
Carried: TypeAlias = "int | tuple[Carried, ...]"


@dataclass(slots=True, eq=False)
class Region:
    """A computation that is executed instruction by instruction, with the fusions in it.

    ``operations`` stand operands first; ``sources[i]`` are the positions of what operation ``i``
    reads, a tuple being all that is in it. ``carried`` tells for every instruction, those that are
    looked through too, which operation's value it has. ``computations`` are the region's own and
    those of its fusions.
    """

    computation: Computation
    operations: list[Instruction] = field(default_factory=list)
    sources: list[tuple[int, ...]] = field(default_factory=list)
    carried: dict[Instruction, Carried] = field(default_factory=dict)
    computations: list[Computation] = field(default_factory=list)
    callers: dict[Computation, Instruction] = field(default_factory=dict)

    @property
    def outputs(self) -> tuple[int, ...]:
        return tuple(positions(self.carried[self.computation.root]))

    def add(self, instruction: Instruction, sources: tuple[int, ...]) -> int:
        self.operations.append(instruction)
        self.sources.append(sources)
        return len(self.operations) - 1


def positions(carried: Carried) -> Iterator[int]:
    """The operations in what an instruction carries."""
    pending = [carried]
    while pending:
        part = pending.pop()
        if isinstance(part, int):
            yield part
        else:
            pending.extend(reversed(part))


def find_regions(module: Module) -> dict[Computation, Region]:
    """Every region of a module by its computation, in the order of the text.

    A computation belongs to the region of its caller where that is one fusion, call or start of
    something asynchronous, and is a region of its own otherwise.
    """
    counts: Counter[str] = Counter()
    transparent: set[str] = set()
    for body in module.bodies:
        for statement in body.written:
            names = statement.calls
            counts.update(names)
            if statement.opcode in TRANSPARENT:
                transparent.update(names[:1])
    inlined = {name for name in transparent if counts[name] == 1}
    return {
        computation: _flow(computation, inlined)
        for computation in module.computations
        if computation.name not in inlined
    }


class _Frame:
    """A computation whose instructions are being put into a region."""

    __slots__ = ("arguments", "caller", "computation", "index")

    def __init__(
        self,
        computation: Computation,
        arguments: tuple[Carried, ...] | None,
        caller: Instruction | None,
    ) -> None:
        self.computation = computation
        self.arguments = arguments
        self.caller = caller
        self.index = 0


def _flow(computation: Computation, inlined: set[str]) -> Region:
    region = Region(computation)
    carried = region.carried
    frames = [_Frame(computation, None, None)]
    while frames:
        frame = frames[-1]
        instructions = frame.computation.instructions
        edges = frame.computation.graph.operands
        if frame.index == 0:
            region.computations.append(frame.computation)
        while frame.index < len(instructions):
            instruction = instructions[frame.index]
            operands = tuple([carried[instructions[o]] for o in edges[frame.index]])
            frame.index += 1
            opcode = instruction.opcode
            if opcode in TRANSPARENT:
                called = instruction.called
                if called and called[0].name in inlined:
                    region.callers[called[0]] = instruction
                    frames.append(_Frame(called[0], operands, instruction))
                    break
            elif opcode == "tuple":
                carried[instruction] = operands
                continue
            elif opcode == "get-tuple-element":
                index = int(split_attributes(instruction.statement.attributes).get("index", "0"))
                whole = operands[0]
                if isinstance(whole, tuple) and index < len(whole):
                    carried[instruction] = whole[index]
                    continue
            elif opcode == "parameter" and frame.arguments is not None:
                number = int(instruction.statement.inside)
                if number < len(frame.arguments):
                    carried[instruction] = frame.arguments[number]
                    continue
            carried[instruction] = region.add(instruction, tuple(positions(operands)))
        else:
            frames.pop()
            if frame.caller is not None:
                carried[frame.caller] = carried[frame.computation.root]
    return region
