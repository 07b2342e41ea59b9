"""Buffers that outlive kernels, and the kernels that update them in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from fusionscope.graph.aliasing import InPlace, follow_tuples, leaf_indices, read_aliasing
from fusionscope.graph.buffer_sharing import is_elementwise_on, part_of, reached_elementwise
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.hlo.attributes import split_attributes
from fusionscope.hlo.search import reachable, unfold

CONTROL_FLOW = frozenset({"call", "conditional", "while"})

Part = tuple[MutableInstruction, tuple[int, ...]]  # an instruction, and the index of a part of it


def walk_control_flow(graph: MutableModule) -> Iterator[MutableComputation]:
    """Yield what runs instruction by instruction: the entry, loops, branches and calls in it."""

    def called(computation: MutableComputation) -> Iterator[MutableComputation]:
        for instruction in computation.instructions:
            if instruction.opcode in CONTROL_FLOW:
                yield from instruction.called

    return reachable([graph.entry], called)


def find_body(loop: MutableInstruction) -> MutableComputation:
    """Return the body of a ``while``."""
    name = loop.attributes["body"].lstrip("%")
    return next(body for body in loop.called if body.name == name)


def find_steps(graph: MutableModule) -> dict[MutableInstruction, list[InPlace]]:
    """Return the instructions that compute the next contents of a buffer from the old ones, element
    by element, and therefore may update it in place.

    In-place updates are optional. The compiler finds them by itself, except for calls that it
    cannot inspect: without this aliasing, it makes a copy for them.
    """
    steps: dict[MutableInstruction, list[InPlace]] = {}
    for buffers in _buffers_together(graph):
        updates = [_find_updates(computation, buffer) for computation, buffer in buffers]
        if all(updates):
            for kernel, update in filter(None, chain.from_iterable(updates)):
                pairs = steps.setdefault(kernel, [])
                if all(update.slot != pair.slot and update.output != pair.output for pair in pairs):
                    pairs.append(update)
    return steps


def _find_updates(
    computation: MutableComputation, buffer: Buffer
) -> list[tuple[MutableInstruction, InPlace] | None]:
    """Return what may update ``buffer`` in place, None for what leaves it or runs computations. It
    is empty if the result does not fit there.
    """
    old = (buffer.parameter, buffer.part)
    updates: list[tuple[MutableInstruction, InPlace] | None] = []
    for source, output in _origins(computation.root, buffer.output):
        if source.opcode in CONTROL_FLOW or (source, output) == old:
            updates.append(None)
            continue
        for slot, operand in enumerate(source.operands):
            values = list(_origins(operand, ()))
            if (
                old in values
                and may_overwrite(source, slot, output)
                and _reads_last(source, values)
            ):
                updates.append((source, InPlace(slot, output)))
                break
    return updates


def _buffers_together(graph: MutableModule) -> Iterator[list[tuple[MutableComputation, Buffer]]]:
    """Yield the buffers of loops and of the program, each by itself, and those that all branches of
    a conditional return together: the compiler makes a copy if one of them cannot.
    """
    all_buffers = find_buffers(graph)
    branches: set[MutableComputation] = set()
    for computation in walk_control_flow(graph):
        for instruction in computation.instructions:
            if instruction.opcode == "conditional":
                branches.update(instruction.called)
                for value, output in _buffered_values(
                    instruction, all_buffers.get(computation, ())
                ):
                    yield _in_branches(instruction, value, output)
    for computation, buffers in all_buffers.items():
        if computation not in branches:
            yield from ([(computation, buffer)] for buffer in buffers)


def _buffered_values(
    conditional: MutableInstruction, buffers: Iterable[Buffer]
) -> list[tuple[Part, tuple[int, ...]]]:
    """Return the values whose buffers the results at the indices may have: a branch passes them on,
    or they are in one of ``buffers`` of the computation, which the conditional returns.
    """
    root = conditional.computation.root
    values = [
        ((buffer.parameter, buffer.part), output)
        for buffer in buffers
        for source, output in [follow_tuples(root, buffer.output)]
        if source is conditional
    ]
    for branch, operand in zip(conditional.called, conditional.operands[1:], strict=True):
        for output in leaf_indices(branch.root):
            source, part = follow_tuples(branch.root, output)
            if source is branch.parameters[0]:
                values.append((follow_tuples(operand, part), output))
    return list(dict.fromkeys(values))


def _in_branches(
    conditional: MutableInstruction, value: Part, output: tuple[int, ...]
) -> list[tuple[MutableComputation, Buffer]]:
    """Return where each branch is given ``value``, for its result at ``output``."""
    return [
        (branch, Buffer(output, branch.parameters[0], part))
        for branch, operand in zip(conditional.called, conditional.operands[1:], strict=True)
        for part in leaf_indices(operand)
        if follow_tuples(operand, part) == value
    ]


def _origins(value: MutableInstruction, index: tuple[int, ...]) -> Iterator[Part]:
    """Yield the origin of the part of a value at ``index``, and what it then is in the buffer of:
    what a loop starts with, and what a branch passes on.
    """

    def earlier(part: Part) -> list[Part]:
        source, index = part
        if source.opcode == "while":
            return [follow_tuples(source.operands[0], index)]
        return [*_passed_on(source, index)][::-1] if source.opcode == "conditional" else []

    return unfold([follow_tuples(value, index)], earlier)


def _passed_on(conditional: MutableInstruction, index: tuple[int, ...]) -> Iterator[Part]:
    """Yield the value whose buffer the result at ``index`` has, if there is one: each branch that
    is given it returns it there. (The compiler copies it if a branch computes with it.)
    """
    branches = list(zip(conditional.called, conditional.operands[1:], strict=True))
    for branch, operand in branches:
        source, part = follow_tuples(branch.root, index)
        if source is branch.parameters[0]:
            value = follow_tuples(operand, part)
            if all(_only_returns(branch, index, operand, value) for branch, operand in branches):
                yield value
            return


def _only_returns(
    branch: MutableComputation, index: tuple[int, ...], operand: MutableInstruction, value: Part
) -> bool:
    """Return whether ``branch`` returns ``value`` at ``index``, or is not given it."""
    source, part = follow_tuples(branch.root, index)
    if source is branch.parameters[0]:
        return follow_tuples(operand, part) == value
    return all(follow_tuples(operand, index) != value for index in leaf_indices(operand))


class Buffer(NamedTuple):
    """A buffer that a computation receives in a part of a parameter and returns in a part of its
    result: a loop variable, or a parameter that the program may overwrite.
    """

    output: tuple[int, ...]
    parameter: MutableInstruction
    part: tuple[int, ...]


def find_buffers(graph: MutableModule) -> dict[MutableComputation, list[Buffer]]:
    """Return the buffers of each computation that has any."""
    buffers: dict[MutableComputation, list[Buffer]] = {}
    header = split_attributes(graph.source.header)
    buffers[graph.entry] = [
        Buffer(index, graph.entry.parameters[slot], part)
        for slot, index, part in read_aliasing(header.get("input_output_alias", ""))
    ]
    for computation in walk_control_flow(graph):
        for instruction in computation.instructions:
            if instruction.opcode == "while":
                body = find_body(instruction)
                state = body.parameters[0]
                buffers[body] = [Buffer(index, state, index) for index in leaf_indices(state)]
        for buffer in buffers.get(computation, ()):
            source, index = follow_tuples(computation.root, buffer.output)
            if source.opcode == "conditional":
                for branch, operand in zip(source.called, source.operands[1:], strict=True):
                    buffers.setdefault(branch, []).extend(
                        Buffer(index, branch.parameters[0], part)
                        for part in leaf_indices(operand)
                        if follow_tuples(operand, part) == (buffer.parameter, buffer.part)
                    )
    return buffers


def may_overwrite(kernel: MutableInstruction, slot: int, output: tuple[int, ...]) -> bool:
    """Return whether ``kernel`` may write its result at ``output`` where its operand ``slot`` is.

    Source: xla/hlo/analysis/hlo_dataflow_analysis.cc, CanShareOperandBufferWithUser.
    """
    operand = kernel.operands[slot]
    if part_of(kernel.shape, output) != operand.shape:
        return False
    if kernel.opcode != "fusion":
        return is_elementwise_on(kernel, operand)
    if kernel.fusion_kind not in ("kLoop", "kInput", "kCustom"):
        return False
    result, _ = follow_tuples(kernel.fused.root, output)
    reached = reached_elementwise(kernel.fused.parameters[slot])
    return reached is not None and result in reached


def _reads_last(reader: MutableInstruction, values: Iterable[Part]) -> bool:
    """Return whether all other readers of ``values`` run before ``reader``."""
    other_readers = {user for value in values for user in _readers(*value) if user is not reader}
    for earlier in reachable([reader], lambda value: value.operands):
        other_readers.discard(earlier)
        if not other_readers:
            return True
    return False


def _readers(source: MutableInstruction, index: tuple[int, ...]) -> Iterator[MutableInstruction]:
    """Yield what reads the part of ``source`` at ``index``."""
    for user in source.users:
        if not index or user.opcode != "get-tuple-element":
            yield user
        elif user.attribute("index") == index[0]:
            yield from _readers(user, index[1:])
