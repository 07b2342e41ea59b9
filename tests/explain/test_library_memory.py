"""Memory that a library reserves inside of a call, against the growth of a process."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.explain.explain import explain_module
from fusionscope.findings.memory.facts import MemoryFacts
from fusionscope.findings.memory.library_memory import find_library_memory
from fusionscope.hlo.parser import parse

DATA = Path(__file__).parent / "data"
ARRAY = 2048 * 4096 * 4
# MiB, as `measure.py` printed for 2048 x 4096 with jaxlib 0.12 on two cores. The runtime's own
# memory is in it.
MEASURED = {
    "kernel_sum": 40.9,
    "weighted_rows": 8.7,
    "weighted_columns": 32.8,
    "variance": 33.4,
    "scaled": 3.0,
    "maximum": 1.8,
    "weighted_argument": 0.7,
    "two_factors": 1.2,
    "squares": 1.0,
    "product": 2.3,
}


@pytest.mark.parametrize(("name", "growth"), MEASURED.items())
def test_a_process_grows_if_the_library_may_write_an_array(name: str, growth: float) -> None:
    text = gzip.decompress((DATA / f"library_memory/{name}.txt.gz").read_bytes()).decode()
    calls = find_library_memory(parse(text))
    assert [call.bytes for call in calls] == ([ARRAY] if growth > 5 else [])


def test_what_a_library_reserves_is_not_moved_and_part_of_the_memory() -> None:
    (module,) = open_dump(DATA / "kernel_sum").modules
    facts = explain_module(module)
    arguments_and_result = 4 * (2048 * 3 + 4096 * 3 + 4096 + 2048)
    assert sum(kernel.bytes_moved for kernel in facts.kernels) == arguments_and_result
    assert facts.find(MemoryFacts) is not None
    (call,) = facts.find(MemoryFacts).inside_calls
    assert (call.call, call.bytes) == ("ynn_fusion", ARRAY)
    assert facts.find(MemoryFacts).inside_call_bytes == ARRAY
    assert facts.find(MemoryFacts).total_bytes == module.memory_usage
