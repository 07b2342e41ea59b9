"""Arguments whose memory an output could have, if the caller gave them up."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from fusionscope.dump.buffer_assignment import (
    Allocation,
    AllocationKind,
    BufferAssignment,
)
from fusionscope.dump.live_ranges import Position
from fusionscope.findings.memory.facts import Donation
from fusionscope.findings.memory.live_bytes import Span, Spans, count_live
from fusionscope.findings.memory.savings import position_of
from fusionscope.graph.buffer_sharing import may_share
from fusionscope.graph.memory_reuse import Sharing
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.history.operations import argument_name
from fusionscope.hlo import Instruction, Module
from fusionscope.passes.context import GpuTarget

_PASSED_ON = frozenset({"bitcast", "get-tuple-element", "opt-barrier", "tuple"})


class Handover(NamedTuple):
    """A donation, the position of its parameter, the place that reads it last (-1 if none does),
    and the first value in the memory of its output.
    """

    donation: Donation
    parameter: Position
    last: int
    first: Position


_OF_JAX = re.compile("jit_|pjit_|pmap_")


def find_handovers(
    assignment: BufferAssignment, module: Module, sequence: Sequence[str], gpu: GpuTarget | None
) -> Iterator[Handover]:
    """Yield outputs of ``module`` with a memory of their own, each with another parameter of its
    shape. ``sequence`` are the instructions as they run.

    JAX pairs donated arguments and outputs of one shape in their order. Source:
    ``jax/_src/interpreters/mlir.py``, ``_set_up_aliases``.
    """
    parameters_by_shape: dict[str, list[Instruction]] = defaultdict(list)
    entry = {parameter.parameter_number: parameter for parameter in module.entry.parameters}
    for allocation in assignment.allocations:
        if allocation.kind is AllocationKind.PARAMETER and allocation.parameter in entry:
            parameter = entry[allocation.parameter]
            parameters_by_shape[str(parameter.shape)].append(parameter)
    for parameters in parameters_by_shape.values():
        parameters.sort(key=lambda parameter: -(parameter.parameter_number or 0))
    outputs = {
        value.position: (value, allocation)
        for allocation in assignment.allocations
        if allocation.kind is AllocationKind.OUTPUT
        for value in allocation.values
    }
    reads = _Reads(module, sequence, gpu)
    arguments = arguments_of(module)
    for position in map(position_of, module.entry.results):
        if position not in outputs:
            continue
        output, allocation = outputs[position]
        if parameters_by_shape.get(output.shape):
            parameter = parameters_by_shape[output.shape].pop()
            late = reads.too_late(parameter, position, allocation)
            name = parameter.op_name or parameter.name
            number = arguments.get(parameter.parameter_number or 0)
            yield Handover(
                Donation(name, number, str(position), output.size, late),
                Position(parameter.name, ()),
                reads.last(parameter),
                reads.first_writer(position, allocation),
            )


def donated_peak(spans: Spans, length: int, handovers: Iterable[Handover]) -> int:
    """Return the largest number of bytes alive at any of ``length`` places if parameters are
    donated that nothing reads too late: each ends where it is read last.
    """
    changed = dict(spans)
    for handover in handovers:
        span = spans.get(handover.parameter)
        if span is not None and handover.donation.read_by is None:
            last = max(handover.last, span.first)
            taker = spans.get(handover.first)
            shared = {handover.first: span.size} if taker and taker.first == last else {}
            changed[handover.parameter] = Span(span.size, span.first, last, shared)
    return max(count_live(changed.values(), length), default=0)


def arguments_of(module: Module) -> Mapping[int, int]:
    """Return the number of the function's argument of each parameter, nothing for a module that is
    not JAX's. JAX names parameters by arguments and their parts, such as *params['w']*, or
    *args[0]* for those without a name.
    """
    arguments: dict[int, int] = {}
    if not _OF_JAX.match(module.name):
        return arguments
    last, number = "", -1
    for parameter in sorted(
        module.entry.parameters, key=lambda parameter: parameter.parameter_number or 0
    ):
        name = argument_name(parameter)
        if not name or name != last:
            number += 1
        last = name
        arguments[parameter.parameter_number or 0] = number
    return arguments


class _Reads:
    """Tells which parameters are read when outputs are being written."""

    def __init__(self, module: Module, sequence: Sequence[str], gpu: GpuTarget | None) -> None:
        self._module = module
        self._places = {name: place for place, name in enumerate(sequence)}
        self._by_name = {instruction.name: instruction for instruction in module.entry.instructions}
        self._may_share: Sharing = may_share
        if gpu is not None:
            from fusionscope.gpu.buffer_sharing import sharing_on  # CPUs do without

            self._may_share = sharing_on(gpu.device, gpu.gpu_model.emitters)

    def last(self, parameter: Instruction) -> int:
        """Return the last place at which ``parameter`` is read, -1 if none does."""
        places = (self._places.get(reader.name, -1) for _, reader in _readers(parameter))
        return max(places, default=-1)

    def too_late(self, parameter: Instruction, output: Position, memory: Allocation) -> str | None:
        """Return what still reads ``parameter`` when the first value is written to the ``memory``
        of ``output``; None if nothing does.
        """
        writer = self.first_writer(output, memory)
        place_written = self._places.get(writer.name)
        if place_written is None:
            return None
        for operand, reader in _readers(parameter):
            place = self._places.get(reader.name, -1)
            is_late = place > place_written
            if place == place_written:
                user = self._mutable[reader.name]
                is_late = not self._may_share(self._mutable[operand.name], user, writer.index)
            if is_late:
                return reader.name
        return None

    def first_writer(self, output: Position, memory: Allocation) -> Position:
        """Return the value from which ``output`` has its memory, such as what a loop starts from,
        or what is updated in place.
        """
        positions = {value.position for value in memory.values}
        first = output
        while True:
            positions.discard(first)
            writer = self._by_name.get(first.name)
            operands = writer.operands if writer is not None else ()
            if writer is not None and writer.opcode == "while" and operands[0].opcode == "tuple":
                operands = operands[0].operands
            before = next((at for at in map(position_of, operands) if at in positions), None)
            if before is None:
                return first
            first = before

    @cached_property
    def _mutable(self) -> dict[str, MutableInstruction]:
        return {
            instruction.name: instruction
            for instruction in MutableModule(self._module).entry.instructions
        }


def _readers(parameter: Instruction) -> Iterator[tuple[Instruction, Instruction]]:
    """Yield what reads the memory of ``parameter``, after the operand by which it does."""
    pending, visited = [parameter], {parameter}
    while pending:
        operand = pending.pop()
        for user in operand.users:
            if user.opcode not in _PASSED_ON:
                yield operand, user
            elif user not in visited:
                visited.add(user)
                pending.append(user)
