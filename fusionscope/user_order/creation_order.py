"""Infers the order in which the instructions of a text were created, without ids.

An instruction is created after its operands. Of two similar ones, the one with the larger number in
its name is newer: the compiler numbers names upwards. The rest is likely, but not certain.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from fusionscope.graph.comparison import meaning_of
from fusionscope.hlo import Computation, Instruction
from fusionscope.hlo.attributes import split_attributes
from fusionscope.hlo.model import Statement
from fusionscope.hlo.shape import Shape
from fusionscope.user_order.infer_user_order import StageGraph
from fusionscope.user_order.renaming import find_renamed

_NUMBERED = re.compile(r"(.+)\.(\d+)")
_PARAMETER, _CONSTANT, _FORWARD, _BACKWARD = range(4)

_MOVING = frozenset({"bitcast", "broadcast", "reshape"})
# Opcodes of the first result of a reduction.
_PARTIAL = frozenset({"get-tuple-element", "reduce"})

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
            return _CONSTANT, numbered(constant.name)[1], instruction.index
        metadata = instruction.metadata
        frame = int(metadata.get("stack_frame_id", "0"))
        scope = metadata.get("op_name", "")
        if "transpose(" in scope and "rematted_computation" not in scope:
            return _BACKWARD, -frame, instruction.index
        return _FORWARD, frame, instruction.index

    instructions = computation.instructions
    operands = {
        instruction.name: [operand.name for operand in instruction.operands]
        for instruction in instructions
    }
    return _sorted(operands, {instruction.name: key(instruction) for instruction in instructions})


def later_creation_order(
    new_names: Mapping[str, Sequence[str]], again: Container[str] = ()
) -> list[str]:
    """Return the names of the instructions that a pass ``new_names`` in a computation, oldest
    first. They come with the names of their operands, in the order of the text. Those made
    ``again`` have the numbers of others.
    """
    return _sorted(new_names, {name: (place,) for place, name in enumerate(new_names)}, again)


class _Changed(NamedTuple):
    """An instruction of a computation, with its operands."""

    statement: Statement
    operands: list[Statement]
    computation: Computation


def find_made_again(before: StageGraph, after: StageGraph) -> Iterator[str]:
    """Yield instructions that most likely were created later, under the name of the one that they
    replaced: they have another opcode or other attributes, combine two that move elements, or
    finish a reduction that was split.
    """
    lines = {
        id(statement)
        for computation in before.unshared(after)
        for statement in before.bodies[computation.body].statements
    }
    renamed = find_renamed(before, after)
    now = {old: name for name, old in renamed.items()}
    new = dict(_changed(after, before, lambda statement: id(statement) not in lines))
    old = dict(_changed(before, after, lambda statement: statement.name in new))
    for name, (statement, reads, computation) in new.items():
        if name not in old or name in renamed or old[name].statement == statement:
            continue
        old_statement, old_reads, old_computation = old[name]
        if old_statement.opcode != statement.opcode:
            yield name
            continue
        names_before = [now.get(read.name, read.name) for read in old_reads]
        if [read.name for read in reads] == names_before:
            continue
        if _meaning(old_statement) != _meaning(statement):
            yield name
        elif not (reads and old_reads):  # such as a fusion that reads nothing any more
            continue
        elif (
            old_statement.opcode == "reduce"
            and reads[0].name not in before.ages
            and reads[0].opcode in _PARTIAL
        ) or (
            reads[0].name in before.ages
            and {old_statement.opcode, old_reads[0].opcode} <= _MOVING
            and (
                _shape(old_computation, old_reads[0]) != _shape(computation, reads[0])
                # A bitcast could just have been left out where it changed nothing.
                or (
                    old_reads[0].name not in after.ages
                    and "bitcast" not in (old_statement.opcode, old_reads[0].opcode)
                )
            )
        ):
            yield name


def _changed(
    stage: StageGraph, later_stage: StageGraph, is_wanted: Callable[[Statement], bool]
) -> Iterator[tuple[str, _Changed]]:
    """Yield names and instructions of computations that differ from ``later_stage``."""
    for computation in stage.unshared(later_stage):
        edges = stage.bodies[computation.body]
        by_name = dict(zip(edges.names, edges.statements, strict=True))
        for name, statement in by_name.items():
            if is_wanted(statement):
                reads = [by_name[operand] for operand in edges.operands[name]]
                yield name, _Changed(statement, reads, computation)


def _meaning(statement: Statement) -> dict[str, str]:
    return meaning_of(split_attributes(statement.attributes))


def _shape(computation: Computation, statement: Statement) -> Shape:
    if not statement.shape:  # an element of a tuple that the text omits
        return computation.instruction(statement.name).shape
    return computation.body.shapes[statement.shape]


def _constant(instruction: Instruction) -> Instruction | None:
    """Return the constant that an instruction is, or that an array is filled with."""
    if instruction.opcode == "broadcast":
        (instruction,) = instruction.operands
    return instruction if instruction.opcode == "constant" else None


def numbered(name: str) -> tuple[str, int]:
    """Return a name without its trailing number, and that number."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, 0)


def _sorted(
    operands: Mapping[str, Sequence[str]], keys: Mapping[str, Key], unnumbered: Container[str] = ()
) -> list[str]:
    """Return instructions sorted by their ``keys``, as far as the numbers of names, but those
    ``unnumbered``, and the ``operands`` allow.
    """
    # networkx.lexicographical_topological_sort gives the same order in twice the time, and fails
    # where numbers of names and operands contradict each other, as they do in real dumps.
    later: dict[str, list[str]] = defaultdict(list)
    waits = dict.fromkeys(operands, 0)
    for old, new in _follows(operands, unnumbered):
        if old in operands:
            later[old].append(new)
            waits[new] += 1
    ready = [(keys[name], name) for name in operands if not waits[name]]
    heapq.heapify(ready)
    order: dict[str, None] = {}
    for start in operands:  # the first remaining ones, if there is a cycle
        if not ready and start not in order:
            ready = [(keys[start], start)]
        while ready:
            _, name = heapq.heappop(ready)
            if name in order:
                continue
            order[name] = None
            for later_name in later[name]:
                waits[later_name] -= 1
                if waits[later_name] == 0:
                    heapq.heappush(ready, (keys[later_name], later_name))
    return list(order)


def _follows(
    operands: Mapping[str, Sequence[str]], unnumbered: Container[str]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of which the first was created before the second."""
    alike: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, read in operands.items():
        for operand in dict.fromkeys(read):
            yield operand, name
        if name not in unnumbered:
            stem, number = numbered(name)
            alike[stem].append((number, name))
    for names in alike.values():
        for (_, old), (_, new) in pairwise(sorted(names)):
            yield old, new
