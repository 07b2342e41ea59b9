"""The memory of a module: the peak, what is alive there, and which refused fusions made it.

Sizes and places in memory come from the compiler's buffer assignment, lifetimes from its live
ranges. The compiler names a peak, too, but weighs elements of tuples (the results of a loop, or of
a fusion with several outputs) like pointers, and memory that is reused in place twice. So the peak
here is computed from the real sizes, each byte once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from fusionscope.dump import DumpedModule
from fusionscope.dump.buffer_assignment import (
    Allocation,
    AllocationKind,
    AssignedValue,
    BufferAssignment,
)
from fusionscope.dump.live_ranges import Position
from fusionscope.dump.names import Role
from fusionscope.errors import UnusableInput, shorten
from fusionscope.facts.scopes import origin_of
from fusionscope.facts.source_lines import user_line
from fusionscope.findings.memory.donations import donated_peak, find_handovers
from fusionscope.findings.memory.facts import (
    LifeTime,
    LiveBuffer,
    MemoryFacts,
)
from fusionscope.findings.memory.library_memory import find_library_memory
from fusionscope.findings.memory.live_bytes import Span, count_live, spans_of
from fusionscope.findings.memory.savings import (
    RefusedPairs,
    find_savings,
    launched_by_name,
)
from fusionscope.hlo import Instruction, Module
from fusionscope.passes.context import GpuTarget

_DIFFERS = (
    "the allocations add up to {sum:,} bytes, the compiler's report says {told:,}: one of the two "
    "files is cut off or of another module"
)
_NO_INSTRUCTION = (
    "memory of {name} {shape}, which the final stage does not have: the file is of another module "
    "or run, and ignored"
)
_FOREIGN = "live ranges of {name}, which has no memory in the buffer assignment beside it"


def find_memory(
    module: DumpedModule, final: Module, refused: RefusedPairs, gpu: GpuTarget | None
) -> MemoryFacts | None:
    """Return the memory of ``final``, the final stage; None if no file shows it. ``gpu`` is what it
    was compiled for, None for a CPU. Raises ``UnusableInput`` if a file cannot be used.
    """
    assignment, ranges = module.buffer_assignment, module.live_ranges
    if assignment is None:
        return None
    by_name = launched_by_name(final)
    _check(module, assignment, final)
    spans = spans_of(assignment, ranges) if ranges is not None else {}
    length = len(ranges.sequence) if ranges is not None else 0
    sequence = ranges.sequence if ranges is not None else ()
    live = count_live(spans.values(), length)
    kinds = {v.position: a.kind for a in assignment.allocations for v in a.values}
    peak = max(live, default=0)
    at = live.index(peak) if spans else None
    bytes_of = _by_kind(assignment)
    temporary = (span for position, span in spans.items() if kinds[position] in _TEMPORARY)
    alive = max(count_live(temporary, length), default=0) if spans else None
    handovers = list(find_handovers(assignment, final, sequence, gpu))
    return MemoryFacts(
        total_bytes=assignment.total_bytes,
        parameters=bytes_of[AllocationKind.PARAMETER],
        donated=bytes_of[AllocationKind.DONATED],
        outputs=bytes_of[AllocationKind.OUTPUT],
        temporaries=bytes_of[AllocationKind.TEMPORARY],
        constants=bytes_of[AllocationKind.CONSTANT],
        thread_local=bytes_of[AllocationKind.THREAD_LOCAL],
        fragmentation=bytes_of[AllocationKind.TEMPORARY] - alive if alive is not None else 0,
        peak_bytes=peak if at is not None else None,
        peak_at=at,
        peak_instruction=sequence[min(at, length - 1)] if at is not None else None,
        compiler_peak=ranges.peak if ranges is not None else None,
        at_peak=_alive_at(at, assignment, spans, by_name) if at is not None else (),
        savings=find_savings(refused, by_name, sequence, spans, live) if spans else (),
        donations=tuple(
            sorted(
                (handover.donation for handover in handovers), key=lambda donation: -donation.bytes
            )
        ),
        donated_peak=donated_peak(spans, length, handovers) if spans else None,
        over_time=tuple(live) if spans else (),
        values=tuple(
            LifeTime(str(position), kinds[position], span.size, span.first, span.last)
            for position, span in spans.items()
        ),
        inside_calls=find_library_memory(final),
    )


_TEMPORARY = frozenset({AllocationKind.TEMPORARY})


def _check(module: DumpedModule, assignment: BufferAssignment, final: Module) -> None:
    """Raise ``UnusableInput`` if the files contradict each other, or the final stage."""
    file, reported = str(module.files[Role.BUFFER_ASSIGNMENT][0]), module.memory_usage
    shapes = {s.name: s.shape for c in final.computations for s in c.graph.statements}
    for value in (value for allocation in assignment.allocations for value in allocation.values):
        name, shape = value.position.name, _without_layout(value.shape)
        defined = shapes.get(name)
        is_array = not value.position.index and defined is not None and defined[0] != "("
        if defined is None or (is_array and _without_layout(defined) != shape):
            problem = _NO_INSTRUCTION.format(name=shorten(name), shape=shorten(shape))
            raise UnusableInput(problem, file=file)
    if reported is not None and reported != assignment.total_bytes:
        raise UnusableInput(_DIFFERS.format(sum=assignment.total_bytes, told=reported), file=file)
    if module.live_ranges is not None:
        positions = {
            value.position for allocation in assignment.allocations for value in allocation.values
        }
        foreign = next((span for span in module.live_ranges.ranges if span not in positions), None)
        if foreign is not None:
            file = str(module.files.get(Role.LIVE_RANGES, (file,))[0])
            raise UnusableInput(_FOREIGN.format(name=shorten(str(foreign))), file=file)


def _without_layout(shape: str) -> str:
    return shape.partition("{")[0]


def _by_kind(assignment: BufferAssignment) -> Mapping[AllocationKind, int]:
    totals: dict[AllocationKind, int] = defaultdict(int)
    for allocation in assignment.allocations:
        totals[allocation.kind] += allocation.size
    return totals


def _alive_at(
    at: int,
    assignment: BufferAssignment,
    spans: Mapping[Position, Span],
    by_name: Mapping[str, Instruction],
) -> tuple[LiveBuffer, ...]:
    """Return what is alive at one place, the largest first."""
    live_buffers: list[LiveBuffer] = []
    for allocation in assignment.allocations:
        alive = [
            value
            for value in allocation.values
            if (span := spans.get(value.position)) and span.first <= at <= span.last
        ]
        takers = {
            taker: value.position
            for value in alive
            if (span := spans[value.position]).last == at
            for taker in span.handed
        }
        for value in alive:
            origin = _origin(value, allocation, by_name)
            place = user_line(origin.stack) if origin is not None else None
            before = takers.get(value.position)
            live_buffers.append(
                LiveBuffer(
                    name=str(value.position),
                    kind=allocation.kind,
                    bytes=value.size,
                    shape=value.shape,
                    first=spans[value.position].first,
                    last=spans[value.position].last,
                    in_place_of=str(before) if before is not None else None,
                    op_name=origin.op_name if origin is not None else None,
                    source=str(place) if place else None,
                )
            )
    return tuple(sorted(live_buffers, key=lambda buffer: -buffer.bytes))


def _origin(
    value: AssignedValue, allocation: Allocation, by_name: Mapping[str, Instruction]
) -> Instruction | None:
    """Return the instruction that tells where a value comes from. Of what a loop passes on, that
    is one that computes it.
    """
    instruction = by_name.get(value.position.name)
    if instruction is None or instruction.op_name:
        return instruction
    if instruction.opcode == "parameter" and instruction.computation.is_entry:
        return instruction
    for same_value in allocation.values:
        if (same_value.offset, same_value.size, same_value.shape) == (
            value.offset,
            value.size,
            value.shape,
        ):
            instruction_of = by_name.get(same_value.position.name)
            if instruction_of is not None and instruction_of.op_name:
                return instruction_of
    return origin_of(instruction)
