"""Loops that the CPU compiler compiles as one piece, against what it made itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.graph.comparison import find_divergence
from fusionscope.graph.mutable import MutableModule, to_module
from fusionscope.rerun.loop_hoisting import hoist_loops

CPU = Path(__file__).parents[2] / "samples" / "dumps" / "cpu"


@pytest.mark.parametrize(("name", "calls"), [("cartpole", 1), ("loop", 0), ("softmax", 0)])
def test_loops_become_calls_as_in_the_dump(name: str, calls: int) -> None:
    (module,) = open_dump(CPU / name).modules
    # The last stage before the pass, and the first one behind it.
    stages = [stage for stage in module.stages if stage.name.counter is not None]
    scheduled = next(
        n for n, s in enumerate(stages) if s.name.pipeline == "HLO_passes_after_scheduling"
    )
    later = ("small-while-loop-hoisting", "propagate-call-metadata")
    before = [stage for stage in stages[:scheduled] if stage.name.after not in later][-1]
    graph = MutableModule(module.read(before))
    hoist_loops(graph)
    assert sum(instruction.opcode == "call" for instruction in graph.walk()) == calls
    assert find_divergence(to_module(graph), module.read(stages[scheduled - 1])) is None
