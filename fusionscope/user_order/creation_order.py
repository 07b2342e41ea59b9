"""Infers the order in which the instructions of a text were created, without ids.

An instruction is created after its operands. Of two similar ones, the one with the larger number in
its name is newer: the compiler numbers names upwards. The rest is likely, but not certain.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import pairwise

from fusionscope.graph.comparison import meaning_of
from fusionscope.hlo import Computation, Instruction
from fusionscope.hlo.attributes import split_attributes
from fusionscope.hlo.model import Statement
from fusionscope.hlo.shape import Shape

_NUMBERED = re.compile(r"(.+)\.(\d+)")
_PARAMETER, _CONSTANT, _FORWARD, _BACKWARD = range(4)

_MOVING = frozenset({"bitcast", "broadcast", "reshape"})

Key = tuple[int, ...]


def first_creation_order(computation: Computation) -> list[str]:
    """Return the names in a program as the compiler received it, oldest first.

    Parameters come first, then constants, each with the array that is filled with it. The places in
    the user's code of other operations are numbered as they appear; operations of a gradient come
    after those that they differentiate, in reverse order.
    """

    def key(instruction: Instruction) -> Key:
        number = instruction.parameter_number
        if number is not None:
            return _PARAMETER, number
        constant = _constant(instruction)
        if constant is not None:
            return _CONSTANT, _number(constant.name)[1], instruction.index
        metadata = instruction.metadata
        frame = int(metadata.get("stack_frame_id", "0"))
        scope = metadata.get("op_name", "")
        if "transpose(" in scope and "rematted_computation" not in scope:
            return _BACKWARD, -frame, instruction.index
        return _FORWARD, frame, instruction.index

    return _sorted(computation.instructions, key)


def later_creation_order(made: Sequence[Instruction]) -> list[str]:
    """Return the names of the instructions that a pass ``made`` in a computation, oldest first."""
    return _sorted(made, lambda instruction: (instruction.index,))


def find_made_again(
    changed: tuple[Iterable[Computation], Iterable[Computation]],
    names: tuple[Container[str], Container[str]],
) -> Iterator[str]:
    """Yield instructions that most likely were created later, under the name of the one that they
    replaced: they have another opcode or other attributes, or combine two that move elements.

    ``changed`` are the computations before and after that differ, ``names`` all instructions.
    """
    before, after = changed
    old_lines = {id(statement) for each in before for statement in each.graph.statements}
    new = {
        statement.name: (statement, index, computation)
        for computation in after
        for index, statement in enumerate(computation.graph.statements)
        if id(statement) not in old_lines
    }
    old = {
        statement.name: (statement, index, computation)
        for computation in before
        for index, statement in enumerate(computation.graph.statements)
        if statement.name in new
    }
    for name, (statement, index, computation) in new.items():
        if name not in old or old[name][0] == statement:
            continue
        known, old_index, old_computation = old[name]
        if known.opcode != statement.opcode:
            yield name
            continue
        old_reads, reads = _operands(old_computation, old_index), _operands(computation, index)
        if [each.name for each in reads] != [each.name for each in old_reads] and (
            _meaning(known) != _meaning(statement)
            or (
                reads[0].name in names[0]
                and {known.opcode, old_reads[0].opcode} <= _MOVING
                and (
                    _shape(old_computation, old_reads[0]) != _shape(computation, reads[0])
                    # A bitcast could just have been left out where it changed nothing.
                    or (old_reads[0].name not in names[1] and known.opcode != "bitcast")
                )
            )
        ):
            yield name


def _meaning(statement: Statement) -> dict[str, str]:
    return meaning_of(split_attributes(statement.attributes))


def _operands(computation: Computation, index: int) -> list[Statement]:
    graph = computation.graph
    return [graph.statements[operand] for operand in graph.operands[index]]


def _shape(computation: Computation, statement: Statement) -> Shape:
    return computation.body.shapes[statement.shape]


def _constant(instruction: Instruction) -> Instruction | None:
    """Return the constant that an instruction is, or that an array is filled with."""
    if instruction.opcode == "broadcast":
        (instruction,) = instruction.operands
    return instruction if instruction.opcode == "constant" else None


def _number(name: str) -> tuple[str, int]:
    """Return a name without its trailing number, and that number."""
    found = _NUMBERED.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, 0)


def _sorted(instructions: Sequence[Instruction], key: Callable[[Instruction], Key]) -> list[str]:
    """Return instructions sorted by ``key``, as far as the numbers of names and the
    operands allow.
    """
    # networkx.lexicographical_topological_sort gives the same order in twice the time, and fails
    # where numbers of names and operands contradict each other, as they do in real dumps.
    by_name = {each.name: each for each in instructions}
    later: dict[str, list[str]] = defaultdict(list)
    waits = dict.fromkeys(by_name, 0)
    for old, new in _follows(instructions):
        if old in by_name:
            later[old].append(new)
            waits[new] += 1
    ready = [(key(each), each.name) for each in instructions if not waits[each.name]]
    heapq.heapify(ready)
    order: dict[str, None] = {}
    for start in by_name:  # the first remaining ones, if there is a cycle
        if not ready and start not in order:
            ready = [(key(by_name[start]), start)]
        while ready:
            _, name = heapq.heappop(ready)
            if name in order:
                continue
            order[name] = None
            for each in later[name]:
                waits[each] -= 1
                if waits[each] == 0:
                    heapq.heappush(ready, (key(by_name[each]), each))
    return list(order)


def _follows(instructions: Sequence[Instruction]) -> Iterator[tuple[str, str]]:
    """Yield pairs of which the first was created before the second."""
    alike: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for each in instructions:
        for operand in dict.fromkeys(each.operands):
            yield operand.name, each.name
        stem, number = _number(each.name)
        alike[stem].append((number, each.name))
    for numbered in alike.values():
        for (_, old), (_, new) in pairwise(sorted(numbered)):
            yield old, new
