"""What a profiler recorded of runs: ``plugins/profile/RUN/HOST.trace.json.gz``.

``jax.profiler.trace`` writes these files, in the Trace Event Format, and ``HOST.xplane.pb``, from
which they are made. Either will do: JSON is read faster, and leaves out what is too much.

For a CPU, a thunk has an event with its instruction, and an event ``end: NAME`` where it is done,
maybe on another thread (ThunkExecutor::TracedExecute,
xla/backends/cpu/runtime/thunk_executor.cc). For a GPU, each kernel on a stream has an event with
the instruction that launched it. The host's own events of such a launch have the same names, and
are left out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from math import inf
from pathlib import Path

import msgspec

from fusionscope.dump.trace_events import Event, Trace
from fusionscope.dump.xplane import read_xplane
from fusionscope.errors import UnusableInput, shorten
from fusionscope.grouping import grouped
from fusionscope.system.files import is_directory, is_there, read_file, read_text, uncompress

_PLACES = ("plugins/profile/*", "*", ".")  # below a directory
_NAMES = ("*.trace.json*", "*.xplane.pb")  # the first that are there
_END = "end: "
_RUN_OF_GPU = ":XLA GPU module"  # ends the name of the host's event for a run
_MOST_MISSING = 16  # ends of one instruction, in the middle of a trace
_MOST_EVENTS = 1_000_000  # the profiler leaves out later ones
EXECUTED = "executed.hlo"  # in the directory: the text of the module, if its names may differ
HOW_TO_RECORD = "record the program again with jax.profiler.trace(DIR)"


@dataclass(frozen=True, slots=True)
class Span:
    """An instruction of the final module at work: microseconds from the start of the trace."""

    instruction: str
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run of ``module`` on one device of ``backend`` (cpu or gpu): its ``spans`` by their
    start. Those of a loop contain those of its body.
    """

    module: str
    backend: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """The runs of all modules in a trace. ``cut`` counts those that the trace does not show to the
    end, by module. ``is_full`` is whether the trace has as many events as are written. ``executed``
    is the text of the module that ran, empty if the profile does not have it.
    """

    path: str
    runs: tuple[Run, ...]
    cut: Counter[str]
    is_full: bool
    executed: str = ""

    def runs_of(self, module: str, backend: str | None) -> tuple[Run, ...]:
        """Return the runs of one module on a kind of device."""
        return tuple(run for run in self.runs if (run.module, run.backend) == (module, backend))


def read_profile(path: Path) -> Profile:
    """Return the runs in a directory that ``jax.profiler.trace`` wrote to, or in one file.

    Of several traces in the directory, the newest counts: one file for each host. Raises
    ``UnusableInput`` if there is none, or if it cannot be read.
    """
    runs: list[Run] = []
    cut: Counter[str] = Counter()
    is_full = False
    for file in _find_files(path):
        events = _read(file)
        is_full |= file.suffix != ".pb" and len(events) >= _MOST_EVENTS
        for run, is_whole in (*_runs_on_cpu(events), *_runs_on_gpus(events)):
            if is_whole:
                runs.append(run)
            else:
                cut[run.module] += 1
    executed = path / EXECUTED
    text = read_text(executed) if is_there(executed) else ""
    return Profile(str(path), tuple(runs), cut, is_full, text)


def _find_files(path: Path) -> Sequence[Path]:
    if not is_there(path):
        raise UnusableInput("no such file or directory", file=str(path), hint=HOW_TO_RECORD)
    if not is_directory(path):
        return [path]
    try:
        for place in _PLACES:
            files = [file for name in _NAMES for file in sorted(path.glob(f"{place}/{name}"))]
            if files:
                newest = max(file.parent.name for file in files)
                files = [file for file in files if file.parent.name == newest]
                return [file for file in files if file.suffix == files[0].suffix]
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise UnusableInput(problem, file=str(path)) from None
    raise UnusableInput(
        "no trace in it, expected plugins/profile/RUN/HOST.trace.json.gz or HOST.xplane.pb",
        file=str(path),
        hint=HOW_TO_RECORD,
    )


def _read(file: Path) -> list[Event]:
    data = read_file(file)
    if file.suffix == ".pb":
        return read_xplane(data, str(file))
    if file.suffix == ".gz":
        data = uncompress(data, str(file))
    try:
        return msgspec.json.decode(data, type=Trace).events
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem = f"not a whole trace in JSON ({shorten(str(error), 200)})"
        raise UnusableInput(problem, file=str(file), hint=HOW_TO_RECORD) from None


def _runs_on_cpu(events: Iterable[Event]) -> Iterator[tuple[Run, bool]]:
    """Yield the runs of the host, each with whether all of its instructions end in the trace."""
    starts: dict[str, list[Event]] = defaultdict(list)
    ends: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.ph != "X":
            continue
        if event.name.startswith(_END):
            ends[event.name.removeprefix(_END)].append(event.ts)
        elif event.args.run_id is not None and event.args.hlo_op is not None:
            starts[event.args.hlo_op].append(event)
    spans_by_run: dict[tuple[str, str | None, str | None], list[Span]] = defaultdict(list)
    cut = set()
    ends_are_shown = bool(ends)
    for instruction, begun in starts.items():
        begun.sort(key=lambda event: event.ts)
        end_times = _ends(begun, sorted(ends[instruction]))
        if not ends_are_shown:  # by an older compiler; the event itself then lasts until the end
            end_times = (event.ts + event.dur for event in begun)
        for event, end in zip(begun, end_times, strict=True):
            of = event.args
            key = of.hlo_module or "", of.run_id, of.device_ordinal
            spans_by_run[key].append(Span(instruction, event.ts, end))
            if end == inf:
                cut.add(key)
    for key, spans in spans_by_run.items():
        yield Run(key[0], "cpu", _in_order(spans)), key not in cut


def _ends(begun: Sequence[Event], ends: Sequence[float]) -> Iterator[float]:
    """Yield when each thunk of one instruction is done: infinity if the trace does not show it.

    They end in the order in which they start, and the trace may stop before the last ones do. If
    further ends are missing, they are those without which the others come least after the next
    start on the same device: an end is often recorded late.
    """
    ends = ends[bisect_left(ends, begun[0].ts) :]  # the trace may begin in a run
    last = len(begun)
    while last > len(ends) and (not ends or ends[-1] < begun[last - 1].ts):
        last -= 1  # the trace stops before it ends
    without_end = _missing(begun[:last], ends)
    place = 0
    for number, event in enumerate(begun):
        if without_end is None or number >= last or number in without_end:
            yield inf
        else:
            yield max(ends[place], event.ts)
            place += 1


def _missing(begun: Sequence[Event], ends: Sequence[float]) -> Set[int] | None:
    """Return the numbers of the events whose ends are missing, or None if that is unclear."""
    count = len(begun) - len(ends)
    if count <= 0:
        return frozenset() if count == 0 else None
    if count > _MOST_MISSING:
        return None
    again: dict[str | None, float] = {}  # when a device runs it next
    limits: list[float] = []
    for event in reversed(begun):
        limits.append(again.get(event.args.device_ordinal, inf))
        again[event.args.device_ordinal] = event.ts
    limits.reverse()
    costs = [0.0] + [inf] * count  # how late ends are, by the number of those missing so far
    was_skipped: list[list[bool]] = []
    for number, (event, limit) in enumerate(zip(begun, limits, strict=True)):
        skips = []
        for skipped in range(count, -1, -1):
            place = number - skipped
            least = inf
            if 0 <= place < len(ends) and ends[place] >= event.ts:
                least = costs[skipped] + max(0.0, ends[place] - limit)
            skip = costs[skipped - 1] if skipped else inf
            skips.append(skip < least)
            costs[skipped] = min(skip, least)
        was_skipped.append(skips[::-1])
    if costs[count] == inf:
        return None
    without_end = set()
    for number in range(len(begun) - 1, -1, -1):
        if was_skipped[number][count]:
            without_end.add(number)
            count -= 1
    return without_end


def _in_order(spans: Iterable[Span]) -> tuple[Span, ...]:
    return tuple(sorted(spans, key=lambda span: (span.start_us, -span.end_us)))


def _runs_on_gpus(events: Iterable[Event]) -> Iterator[tuple[Run, bool]]:
    """Yield the runs on each GPU, in order: kernels do not name theirs."""
    devices: set[int] = set()
    spans: dict[tuple[int, str], list[Span]] = defaultdict(list)
    of_host: Counter[str] = Counter()
    for event in events:
        if event.ph == "M" and event.name == "process_name":
            if (event.args.name or "").startswith("/device:GPU"):
                devices.add(event.pid)
        elif event.name.endswith(_RUN_OF_GPU):
            of_host[event.name.removesuffix(_RUN_OF_GPU)] += 1
        elif event.args.hlo_op is not None and event.args.run_id is None:
            key = event.pid, event.args.hlo_module or ""
            spans[key].append(Span(event.args.hlo_op, event.ts, event.ts + event.dur))
    for (process, module), spans_of_module in spans.items():
        if process in devices:
            expected = of_host[module] // len(devices)
            for run in _split(_in_order(spans_of_module), expected):
                yield Run(module, "gpu", run), True


def _split(spans: Sequence[Span], expected: int) -> Iterator[tuple[Span, ...]]:
    """Yield the runs in the spans of one device, of which the host tells the ``expected`` number.

    An instruction that runs equally often in each run divides its spans evenly, and the first of
    them begin the runs. The profiler may lose kernels, and branches are not always taken.
    """
    by_instruction = grouped((span.instruction, span.start_us) for span in spans)
    counts = [len(instruction_spans) for instruction_spans in by_instruction.values()]
    if not expected or sum(count % expected == 0 for count in counts) * 2 <= len(counts):
        expected = min(counts)
    steady = [
        instruction_spans
        for instruction_spans in by_instruction.values()
        if len(instruction_spans) % expected == 0
    ]
    begins = [
        min(
            instruction_spans[len(instruction_spans) // expected * n]
            for instruction_spans in steady
        )
        for n in range(expected)
    ]
    runs: list[list[Span]] = [[] for _ in begins]
    for span in spans:
        runs[max(0, bisect_right(begins, span.start_us) - 1)].append(span)
    return (tuple(run) for run in runs)
