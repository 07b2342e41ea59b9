"""Orders, live ranges and shared buffers of our own, against those of the compiler."""

from pathlib import Path

import pytest

from fusionscope.dump.directory import open_dump
from fusionscope.findings.memory.live_bytes import count_live, spans_of
from fusionscope.gpu.buffer_sharing import sharing_on
from fusionscope.graph import memory_reuse
from fusionscope.graph.buffer_sharing import may_share
from fusionscope.graph.live_ranges import LiveRanges, Values
from fusionscope.graph.mutable import MutableModule
from fusionscope.graph.scheduling import schedule
from fusionscope.versions.context import read_context

SAMPLES = Path(__file__).parents[2] / "samples/dumps"
DUMPS = sorted(
    path.parent
    for kind in ("cpu", "h100", "h200")
    for path in SAMPLES.glob(f"{kind}/*/*after_optimizations-live-range.txt")
)


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: "-".join(path.parts[-2:]))
def test_the_peak_of_the_final_module_is_that_of_its_buffer_assignment(path):
    (module,) = open_dump(path).modules
    gpu = read_context(module).gpu
    sharing = may_share if gpu is None else sharing_on(gpu.device, gpu.gpu_model.emitters)
    values = Values(MutableModule(module.read(module.final)))
    ranges = LiveRanges(values, schedule(values, module.backend, sharing))
    peak = max(memory_reuse.count_live(ranges, sharing))
    reported = module.live_ranges
    spans = spans_of(module.buffer_assignment, reported).values()
    assert peak == max(count_live(spans, len(reported.sequence)))
