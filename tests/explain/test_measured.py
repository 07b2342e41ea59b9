"""Measured times: a real trace of a CPU, and what other traces are refused for."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusionscope.dump import open_dump
from fusionscope.dump.profile import Span, read_profile
from fusionscope.errors import UnusableInput
from fusionscope.explain import ModuleFacts, Selection, explain
from fusionscope.facts.result import Grouping
from fusionscope.findings.measured.facts import Measured
from fusionscope.findings.measured.find import share_time

DATA = Path(__file__).parent / "data/profile"
(TRACE,) = DATA.glob("trace/plugins/profile/*/*.gz")
Events = list[dict[str, Any]]


def measure(trace: Path) -> ModuleFacts:
    (module,) = explain(open_dump(DATA / "dump"), Selection(profile=read_profile(trace))).modules
    return module


def rewritten(path: Path, change: Callable[[Events], Events]) -> Path:
    document = json.loads(gzip.decompress(TRACE.read_bytes()))
    document["traceEvents"] = change(document["traceEvents"])
    path.write_text(json.dumps(document))
    return path


def test_kernels_and_calls_add_up_to_the_run() -> None:
    module = measure(DATA / "trace")
    measured = module.find(Measured)
    assert measured is not None and measured.runs == 5
    assert measured.low_us <= measured.time_us <= measured.high_us
    assert measured.kernels_us == pytest.approx(measured.time_us, rel=0.1)
    # The random numbers are computed by one call, which the trace shows as a whole.
    assert measured.calls and measured.calls[0].kernels > 1
    times = [kernel.measured_us or 0.0 for kernel in module.kernels]
    assert times == sorted(times, reverse=True)
    # The body of the loop runs three times, one branch of two runs.
    launches = {
        kernel.name: kernel.measurement.launches for kernel in module.kernels if kernel.measurement
    }
    assert 3 in launches.values()
    assert any(kernel.measured_us is None for kernel in module.kernels)


def test_a_column_of_measured_times_has_no_others() -> None:
    """What is in a function has no time of its own in the trace: its time is that of the call."""
    selection = Selection(profile=read_profile(DATA / "trace"), by=Grouping.KIND)
    (module,) = explain(open_dump(DATA / "dump"), selection).modules
    assert module.find(Measured) is not None and module.breakdown is not None
    assert module.breakdown.is_measured
    inside = [kernel for kernel in module.kernels if kernel.launches < kernel.runs]
    assert inside and all(kernel.measured_us is None for kernel in inside)
    (call,) = (kernel for kernel in module.kernels if kernel.kind == "function")
    assert call.measurement is not None and call.measurement.launches == call.launches == 1
    measured = sum(kernel.measured_us or 0.0 for kernel in module.kernels)
    assert module.breakdown.tree.time_us == pytest.approx(measured)


def test_kernels_that_run_at_once_share_the_time() -> None:
    spans = [Span("a", 0.0, 4.0), Span("b", 2.0, 6.0), Span("c", 8.0, 9.0), Span("c", 9.0, 9.0)]
    assert share_time(spans) == {"a": 3.0, "b": 3.0, "c": 1.0}


def test_a_thunk_lasts_until_its_end_on_another_thread(tmp_path) -> None:
    def event(name: str, start: float, length: float, **arguments: str) -> dict[str, Any]:
        return {"ph": "X", "pid": 1, "name": name, "ts": start, "dur": length, "args": arguments}

    def run(number: str, start: float) -> Events:
        of = {"run_id": number, "hlo_module": "m", "device_ordinal": "0"}
        return [event("sort", start, 1.0, hlo_op="sort", **of), event("end: sort", start + 5, 0.1)]

    lost = run("3", 40.0)[:1]
    path = rewritten(tmp_path / "a", lambda _: [*run("1", 0.0), *run("2", 20.0), *lost])
    profile = read_profile(path)
    assert [run.spans for run in profile.runs] == [
        (Span("sort", 0.0, 5.0),),
        (Span("sort", 20.0, 25.0),),
    ]
    assert profile.cut == {"m": 1}


def test_late_and_missing_ends_are_told_apart(tmp_path) -> None:
    """Of the steps of a loop, the first one ends late, and one has no end."""

    def event(name: str, start: float, **arguments: str) -> dict[str, Any]:
        return {"ph": "X", "pid": 1, "name": name, "ts": start, "dur": 1.0, "args": arguments}

    of = {"hlo_module": "m", "device_ordinal": "0"}
    begun = [event("dot", 10.0 * n, hlo_op="dot", run_id=str(n // 4), **of) for n in range(12)]
    ends = [event("end: dot", 10.0 * n + (13 if n % 4 == 0 else 8)) for n in range(12) if n != 6]
    earlier = [event("end: dot", -5.0)]  # of a run before the trace
    profile = read_profile(rewritten(tmp_path / "a", lambda _: [*begun, *earlier, *ends]))
    assert [[span.end_us - span.start_us for span in run.spans] for run in profile.runs] == [
        [13.0, 8.0, 8.0, 8.0]
    ] * 2
    assert [run.spans[0].start_us for run in profile.runs] == [0.0, 80.0]
    assert profile.cut == {"m": 1}


def test_kernels_of_a_gpu_are_split_into_runs_by_their_order(tmp_path) -> None:
    def kernel(name: str, start: float, process: int = 1) -> dict[str, Any]:
        arguments = {"hlo_module": "m", "hlo_op": name, "correlation_id": "7"}
        return {"ph": "X", "pid": process, "name": "k", "ts": start, "dur": 1.0, "args": arguments}

    device = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}}
    host = [{"ph": "X", "pid": 2, "name": "m:XLA GPU module", "ts": 0.0, "dur": 9.0}] * 2
    order = "a", "gemm", "gemm", "b", "a", "gemm", "gemm"
    kernels = [kernel(name, 10.0 * n) for n, name in enumerate(order)]
    launches = [kernel(name, n, process=2) for n, name in enumerate(order)]  # the host's own
    path = rewritten(tmp_path / "a", lambda _: [device, *host, *kernels, *launches])
    runs = read_profile(path).runs_of("m", "gpu")
    assert [[span.instruction for span in run.spans] for run in runs] == [
        ["a", "gemm", "gemm", "b"],
        ["a", "gemm", "gemm"],
    ]


def _rename(old: str, new: str) -> Callable[[Events], Events]:
    return lambda events: json.loads(json.dumps(events).replace(f'{old}"', f'{new}"'))


def _on_a_gpu(events: Events) -> Events:
    for event in events:
        if event.get("name") == "process_name":
            event["args"]["name"] = "/device:GPU:0"
        if "run_id" in event.get("args", {}):
            del event["args"]["run_id"]
    return events


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_rename("jit_step", "jit_other"), "no run of jit_step, only of jit_other"),
        (_rename("sort.0", "a\u202e\\n"), "is another program"),
        (lambda events: [], "no kernels of any program"),
        (_on_a_gpu, "ran on a GPU, and the dump is for a CPU"),
        (
            lambda events: [e for e in events if e.get("name") != "end: sort.0"],
            "ends before the first run",
        ),
    ],
)
def test_another_trace_is_refused_in_one_line(change, words, tmp_path) -> None:
    path = rewritten(tmp_path / "t.trace.json", change)
    with pytest.raises(UnusableInput, match=words) as caught:
        measure(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.trace.json.gz", TRACE.read_bytes()[:-2000]),
        ("t.trace.json.gz", b"\x00\xff\x1f\x8b junk"),
        ("t.trace.json", gzip.decompress(TRACE.read_bytes())[:-2000]),
        ("t.trace.json", b"[" * 100_000),
        ("t.trace.json", b'{"traceEvents": [{"ts": "late"}]}'),
        ("t.trace.json", b'{"traceEvents": 1e999}'),
        ("vm.xplane.pb", b"\x0a\x00"),
    ],
)
def test_a_damaged_trace_is_refused_in_one_line(name, content, tmp_path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnusableInput) as caught:
        read_profile(tmp_path)
    assert str(caught.value).isprintable() and str(tmp_path) in str(caught.value)
