"""The peak of memory of a module whose fusions changed: an estimate.

The changed module gets an order, live ranges and shared buffers as the compiler would give them,
and so does the compiler's own module after fusion. The difference of their peaks is added to the
peak of the dump. Fragmentation does not count, and neither do copies that the compiler inserts.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionscope.dump import DumpedModule
from fusionscope.findings.memory.live_bytes import count_live, spans_of
from fusionscope.gpu.buffer_sharing import sharing_on
from fusionscope.graph import memory_reuse
from fusionscope.graph.buffer_sharing import may_share
from fusionscope.graph.cleanup import clean_up
from fusionscope.graph.live_ranges import LiveRanges, Values
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.graph.scheduling import schedule
from fusionscope.hlo import Module
from fusionscope.passes.context import GpuTarget
from fusionscope.what_if.changed_passes import ChangedPasses


def predict_peak(
    module: DumpedModule, passes: ChangedPasses, changed: Module
) -> tuple[int, int] | None:
    """Return the peak of the final module in bytes, and what it becomes if ``changed`` is the
    result of ``passes``; None if no file shows when values are alive, or other passes would act
    differently. Raises ``UnusableInput``.
    """
    assignment, ranges = module.buffer_assignment, module.live_ranges
    if assignment is None or ranges is None or passes.obstacle:
        return None
    peak = max(count_live(spans_of(assignment, ranges).values(), len(ranges.sequence)), default=0)
    was, now = (
        _model_peak(module_after, module.backend, passes.context.gpu, ranges.sequence)
        for module_after in (passes.after, changed)
    )
    return peak, max(peak + now - was, 0)


def _model_peak(
    module: Module, backend: str | None, gpu: GpuTarget | None, sequence: Sequence[str]
) -> int:
    graph = MutableModule(module)
    clean_up(graph, backend)
    sharing = may_share if gpu is None else sharing_on(gpu.device, gpu.gpu_model.emitters)
    values = Values(graph)
    _arrange(values, sequence)
    ranges = LiveRanges(values, schedule(values, backend, sharing))
    peak = max(memory_reuse.count_live(ranges, sharing))
    graph.dissolve()
    return peak


def _arrange(values: Values, sequence: Sequence[str]) -> None:
    """Sort instructions and users as the dump runs them: their own order, which no text shows,
    decides ties. A new instruction comes after its operands.
    """
    places = {name: place for place, name in enumerate(sequence)}
    for computation in values.computations:
        places_found: dict[MutableInstruction, float] = {}
        for instruction in computation.post_order():
            after = (
                max((places_found[operand] for operand in instruction.operands), default=-1) + 0.5
            )
            places_found[instruction] = places.get(instruction.name, after)
        for instruction in computation.instructions:
            instruction.users.reorder(places_found.__getitem__)
        computation.instructions = dict.fromkeys(
            sorted(computation.instructions, key=places_found.__getitem__)
        )
