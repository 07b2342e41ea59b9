"""No command takes more than linear time, counted in the lines that Python executes."""

import gc
import importlib.util
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fusionscope.dump import open_dump
from fusionscope.explain.analyze_module import analyze_module
from fusionscope.graph.mutable import MutableModule
from fusionscope.history import traffic
from fusionscope.hlo import Computation, Instruction, Module, ParseTable
from fusionscope.hlo import parser as hlo_parser
from fusionscope.hlo.attributes import called_names
from fusionscope.passes.gpu.priority_fusion.rules import ReductionBudget
from fusionscope.passes.rule import Decision
from fusionscope.system import memory
from fusionscope.verify.verification import verify
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs, replay

pytestmark = pytest.mark.slow

PATH = Path(__file__).parent.parent / "benchmarks" / "scale.py"
SAMPLE = PATH.parent.parent / "samples" / "dumps" / "h100" / "softmax"
SIZES = (150, 300)
MOST = 2.07  # times as many lines for twice as many instructions; the square would be 4
MOST_WITH_CLONES = 2.35  # of one fusion that is cloned each time it goes into the next

spec = importlib.util.spec_from_file_location("benchmarks_scale", PATH)
assert spec is not None and spec.loader is not None
scale = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = scale  # where its dataclasses look for their module
spec.loader.exec_module(scale)


def count_lines(work: Callable[[], Any]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    ("shape", "backend", "command"),
    [
        ("fan-out", "cpu", "explain"),
        ("equal readers", "cpu", "explain"),
        ("shared constant", "cpu", "verify"),
        ("wide loop", "cpu", "explain"),
        ("wide fusion", "cpu", "explain"),
        ("gradient", "cpu", "verify"),
        ("fan-out", "cpu", "history"),
        ("fan-out", "cpu", "diff"),
        ("fan-out", "gpu", "verify"),
        ("chain", "gpu", "explain"),
        ("many loops", "gpu", "explain"),
        ("diamonds", "gpu", "explain"),
    ],
)
def test_twice_the_instructions_take_twice_the_lines(
    shape: str, backend: str, command: str, tmp_path: Path
) -> None:
    counts = []
    for size in (scale.SMALL, *SIZES):  # the first one imports what the others only call
        paths = []
        for is_changed in (False, True)[: 1 + (command == "diff")]:
            path = tmp_path / f"{size}-{is_changed}"
            scale.write_dump(path, backend, scale.write_module(shape, size, is_changed=is_changed))
            paths.append(path)
        counts.append(count_lines(partial(scale.run, command, paths)))
    most = MOST_WITH_CLONES if (shape, backend) == ("diamonds", "gpu") else MOST
    assert counts[2] / counts[1] < most, (counts, counts[2] / counts[1])


def test_a_full_kernel_asks_most_rules_once_about_equal_siblings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    check = ReductionBudget.check

    def count(*inputs: Any) -> Decision | None:
        nonlocal asked
        asked += 1
        return check(*inputs)

    monkeypatch.setattr(ReductionBudget, "check", count)
    pairs, checks = [], []
    for size in SIZES:
        path = tmp_path / str(size)
        scale.write_dump(
            path, "gpu", scale.write_module("many computations", size, is_changed=False)
        )
        (module,) = open_dump(path).modules
        (run,) = (run for run in find_runs(module) if run.pass_name == "multi_output_fusion")
        asked = 0
        plan = replay(
            run.pass_name,
            module.read(run.before),
            read_context(module),
            choose_compiler(module).compiler,
        )
        pairs.append(sum(decision.is_recorded for decision in plan.decisions))
        checks.append(asked)
    assert pairs[1] / pairs[0] > 3  # the compiler records each
    assert checks[1] / checks[0] < MOST


def test_no_record_is_made_that_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dump"
    scale.write_dump(path, "gpu", scale.write_module("fan-out", scale.SMALL, is_changed=False))
    monkeypatch.delattr("fusionscope.verify.verification._told")
    dump = open_dump(path)
    actual = verify(dump, dump.modules)
    assert actual.passes and not any(run.decisions.compared for run in actual.passes)


def test_explain_reads_each_stage_that_it_needs_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files: list[str | None] = []
    read = hlo_parser.read

    def count(text: str, table: ParseTable, *, file: str | None = None) -> Module:
        files.append(file)
        return read(text, table, file=file)

    monkeypatch.setattr("fusionscope.hlo.read", count)
    (module,) = open_dump(SAMPLE).modules
    assert module.pre_fusion is not None and module.final is not None
    analyze_module(module)
    assert len(files) == len(set(files))
    stages = module.stages
    followed = stages[stages.index(module.pre_fusion) : stages.index(module.final) + 1]
    replayed = [
        stage for run in find_runs(module) for stage in (run.before, run.after or run.before)
    ]
    needed = {stages[0], *followed, *replayed}  # the program's arguments are in the first
    assert set(files) <= {str(stage.text) for stage in needed}
    assert len(needed) < len(stages)


def test_bytes_and_outcomes_are_not_found_where_plans_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dump"
    scale.write_dump(path, "gpu", scale.write_module("fan-out", scale.SMALL, is_changed=False))
    monkeypatch.delattr("fusionscope.verify.verification.outcomes_after")
    dump = open_dump(path)
    actual = verify(dump, dump.modules)
    assert actual.identical and all(fusion_pass.pairs.is_full for fusion_pass in actual.passes)


def test_the_bytes_of_a_launch_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[Instruction] = Counter()
    count_bytes = traffic._traffic

    def count(launch: Instruction) -> traffic.Traffic:
        counts[launch] += 1
        return count_bytes(launch)

    monkeypatch.setattr(traffic, "_traffic", count)
    path = tmp_path / "dump"
    scale.write_dump(path, "gpu", scale.write_module("fan-out", scale.SMALL, is_changed=False))
    scale.run("explain", [path])
    assert counts and set(counts.values()) == {1}


def test_graphs_are_freed_without_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graphs: list[weakref.ref[MutableModule]] = []
    copy = MutableModule.__init__

    def remember(graph: MutableModule, module: Module) -> None:
        graphs.append(weakref.ref(graph))
        copy(graph, module)

    monkeypatch.setattr(MutableModule, "__init__", remember)
    monkeypatch.setattr(memory, "_MANY_OBJECTS", 0)
    dump = open_dump(SAMPLE)
    gc.disable()
    try:
        verify(dump, dump.modules)
        alive = sum(graph() is not None for graph in graphs)
    finally:
        gc.unfreeze()
        gc.enable()
    assert len(graphs) > 10
    assert alive == 0


def test_no_computation_is_looked_for_among_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0

    def is_equal(first: Computation, second: object) -> bool:
        nonlocal compared
        compared += 1
        return first is second

    path = tmp_path / "dump"
    scale.write_dump(path, "cpu", scale.write_module("fan-out", SIZES[1], is_changed=False))
    monkeypatch.setattr(Computation, "__eq__", is_equal)
    scale.run("history", [path])
    assert compared < SIZES[1]


def test_what_a_large_module_calls_is_read_once() -> None:
    texts = [f", kind=kLoop, calls=%fused.{number}" for number in range(32_000)]
    called_names.cache_clear()
    for text in (*texts, *texts):
        called_names(text)
    assert called_names.cache_info().misses == len(texts)
