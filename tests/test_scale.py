"""No command takes more than linear time, counted in the lines that Python executes."""

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fusionscope.dump import open_dump
from fusionscope.hlo import Computation
from fusionscope.hlo.attributes import called_names
from fusionscope.passes.gpu.priority_fusion.rules import ReductionBudget
from fusionscope.passes.rule import Decision
from fusionscope.verify.verification import verify
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs, replay

pytestmark = pytest.mark.slow

PATH = Path(__file__).parent.parent / "benchmarks" / "scale.py"
SIZES = (150, 300)
MOST = 2.07  # times as many lines for twice as many instructions; the square would be 4
MOST_WITH_CLONES = 2.3  # of one fusion that is cloned each time it goes into the next

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

    def count(*given: Any) -> Decision | None:
        nonlocal asked
        asked += 1
        return check(*given)

    monkeypatch.setattr(ReductionBudget, "check", count)
    pairs, checks = [], []
    for size in SIZES:
        path = tmp_path / str(size)
        scale.write_dump(
            path, "gpu", scale.write_module("many computations", size, is_changed=False)
        )
        (module,) = open_dump(path).modules
        (run,) = (each for each in find_runs(module) if each.pass_name == "multi_output_fusion")
        asked = 0
        plan = replay(
            run.pass_name,
            module.read(run.before),
            read_context(module),
            choose_compiler(module).compiler,
        )
        pairs.append(sum(each.is_recorded for each in plan.decisions))
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
    found = verify(dump, dump.modules)
    assert found.passes and not any(each.decisions for each in found.passes)


def test_no_computation_is_looked_for_among_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0

    def is_equal(one: Computation, other: object) -> bool:
        nonlocal compared
        compared += 1
        return one is other

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
