"""Measured times of kernels, from the trace of a profiler, beside those of the model.

Kernels that run at once share the time, so that the times of all kernels are those in which any
kernel ran. Loops, calls and branches are not counted: what they run is. The CPU compiler makes one
function of a small call (``xla_cpu_small_call``), and a trace shows nothing inside of it: such a
call counts as a whole, and its model is that of all kernels in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import fsum
from operator import sub
from statistics import median, quantiles

from fusionscope.dump import DumpedModule
from fusionscope.dump.profile import HOW_TO_RECORD, Profile, Run, Span
from fusionscope.errors import UnusableInput, quoted, shorten
from fusionscope.facts.module_analysis import Analysis
from fusionscope.facts.result import KernelFacts, KernelMeasurement, TimeSource
from fusionscope.facts.summary import group_alike
from fusionscope.findings.measured.facts import Measured, MeasuredCall, RefusalWorth
from fusionscope.graph.comparison import compare
from fusionscope.history.kernels import KernelKind
from fusionscope.hlo import Instruction, Module, parse

_CONTAINERS = frozenset({"call", "conditional", "while"})
_FACTOR = 2.0  # a model that is further off is wrong
_SHARE = 0.01  # of the time of the module: what takes less does not matter


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """The ``runs`` of a module. ``inside`` are the instructions that each loop, call or branch
    contains, directly or not.
    """

    runs: Sequence[Run]
    inside: Mapping[str, frozenset[str]]

    @property
    def time_us(self) -> float:
        """The microseconds of the median run, from its first kernel to the end of its last."""
        return median(map(_elapsed, self.runs))

    @property
    def whole_calls(self) -> frozenset[str]:
        """The loops, calls and branches inside of which the trace shows nothing."""
        visited = {span.instruction for run in self.runs for span in run.spans}
        return frozenset(
            name
            for name, names_inside in self.inside.items()
            if name in visited and visited.isdisjoint(names_inside)
        )

    def spans_of(self, names: Set[str]) -> list[list[Span]]:
        """Return the spans of these instructions in each run."""
        return [[span for span in run.spans if span.instruction in names] for run in self.runs]

    def times_of(self, kernels: Set[str]) -> dict[str, float]:
        """Return the microseconds of the median run for each of ``kernels``, and for each call that
        counts as a whole.
        """
        shares = [share_time(span) for span in self.spans_of(kernels | self.whole_calls)]
        return {name: median(times) for name, times in _by_name(shares).items()}


def find_runs(module: DumpedModule, profile: Profile) -> FoundRuns:
    """Return the runs of the final stage of ``module`` in a trace. A program that is compiled again
    from its text may number its instructions otherwise: if the profile has the text of what ran,
    the runs get the names of the dump.

    Raises ``UnusableInput`` if there is none, which says why in one line, or if the stage cannot be
    read.
    """
    final = module.read(module.last)
    runs: Sequence[Run] = profile.runs_of(final.name, module.backend)
    names = {instruction.name for instruction in final.walk()}
    runs = _renamed(runs, names, final, profile.executed)
    fitting = [run for run in runs if names.issuperset(span.instruction for span in run.spans)]
    if fitting:
        return FoundRuns(fitting, _inside(final))
    raise UnusableInput(
        _why_none(module, final.name, profile, runs, names),
        file=profile.path,
        hint=HOW_TO_RECORD,
    )


def _renamed(runs: Sequence[Run], names: Set[str], final: Module, executed: str) -> Sequence[Run]:
    """Return the runs with the names of ``final``, if they have others and ``executed``, the text
    of the module that ran, has the same structure.
    """
    if not executed or all(span.instruction in names for run in runs for span in run.spans):
        return runs
    compared = compare(final, parse(executed))
    if compared.find_divergence() is not None:
        return runs
    new_names = compared.find_names()
    return [
        replace(
            run,
            spans=tuple(
                replace(span, instruction=new_names.get(span.instruction, span.instruction))
                for span in run.spans
            ),
        )
        for run in runs
    ]


def _inside(module: Module) -> Mapping[str, frozenset[str]]:
    containers = [instruction for instruction in module.walk() if instruction.opcode in _CONTAINERS]
    return {container.name: frozenset(_names_below(container)) for container in containers}


def _names_below(caller: Instruction) -> Iterator[str]:
    pending, visited = list(caller.called), set(caller.called)
    while pending:
        for instruction in pending.pop().instructions:
            yield instruction.name
            pending += (callee for callee in instruction.called if callee not in visited)
            visited.update(instruction.called)


def _why_none(
    module: DumpedModule, name: str, profile: Profile, runs: Sequence[Run], names: set[str]
) -> str:
    short = shorten(name)
    if runs:
        foreign = min({span.instruction for span in runs[0].spans} - names)
        return (
            f"its {short} is another program, or of another compiler: it runs {quoted(foreign)}, "
            "which is not in the dump"
        )
    if profile.cut[name]:
        more = ": it has as many events as the profiler writes" if profile.is_full else ""
        return f"the trace ends before the first run of {short} does{more}"
    backends = {run.backend for run in profile.runs if run.module == name}
    if backends:
        return f"{short} ran on a {min(backends).upper()}, and the dump is for a {_backend(module)}"
    modules = sorted({shorten(run.module) for run in profile.runs})
    if not modules:
        return "the trace has no kernels of any program"
    more = " …" if len(modules) > 3 else ""
    return f"the trace has no run of {short}, only of {', '.join(modules[:3])}{more}"


def _backend(module: DumpedModule) -> str:
    return (module.backend or "unknown backend").upper()


def with_measured(analysis: Analysis, found_runs: FoundRuns) -> Analysis:
    """Return ``analysis`` with the times of its kernels in runs of its module."""
    runs, kernels = found_runs.runs, analysis.facts.kernels
    names = {kernel.name for kernel in kernels}
    whole = found_runs.whole_calls
    spans = found_runs.spans_of(names | whole)
    shares = [share_time(span) for span in spans]
    launches = [Counter(span.instruction for span in times) for times in spans]
    times = _by_name(shares)
    middle = {name: median(kernel_times) for name, kernel_times in times.items()}
    total = fsum(middle.values())
    expected = {
        kernel.name: _modelled(kernel, round(median(launch[kernel.name] for launch in launches)))
        for kernel in kernels
        if kernel.name in times and kernel.time_ns is not None
    }
    for kernel in kernels:
        if kernel.kind == KernelKind.FUNCTION and kernel.name in expected:
            names_inside = found_runs.inside[kernel.name]
            expected[kernel.name] += fsum(
                _modelled(kernel, kernel.runs) for kernel in kernels if kernel.name in names_inside
            )
    is_nominal = any(kernel.time_source is TimeSource.NOMINAL for kernel in kernels)
    scale = _usual_ratio(middle, expected) if is_nominal else 1.0

    def measured(kernel: KernelFacts) -> KernelFacts:
        if kernel.name not in times:
            return kernel
        measured_us = middle[kernel.name]
        model = expected[kernel.name] * scale if kernel.name in expected else None
        low, high = _quartiles(times[kernel.name])
        count = round(median(launch[kernel.name] for launch in launches))
        is_off = (
            model is not None
            and max(measured_us, model) >= _SHARE * total
            and not model / _FACTOR <= measured_us <= model * _FACTOR
        )
        return replace(
            kernel,
            measured_us=measured_us,
            measurement=KernelMeasurement(low, high, count, model, is_off),
        )

    measured_kernels = tuple(map(measured, kernels))
    elapsed = [_elapsed(run) for run in runs]
    busy = [fsum(share.values()) for share in shares]
    low, high = _quartiles(elapsed)
    analysis = replace(analysis, facts=replace(analysis.facts, kernels=measured_kernels))
    bandwidth = _bandwidth(measured_kernels, _SHARE * total)
    facts = analysis.facts.with_finding(
        Measured,
        Measured(
            runs=len(runs),
            time_us=found_runs.time_us,
            low_us=low,
            high_us=high,
            kernels_us=median(busy),
            between_us=median(map(sub, elapsed, busy)),
            scale=scale,
            calls=_calls(whole, times, found_runs.inside, names),
            bandwidth=bandwidth,
            refusals=_refusals(analysis, bandwidth),
        ),
    )
    return replace(analysis, facts=facts)


def _by_name(shares: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Return the times of each instruction in all runs."""
    return {name: [share.get(name, 0.0) for share in shares] for name in set().union(*shares)}


def _calls(
    names: Iterable[str],
    times: Mapping[str, Sequence[float]],
    inside: Mapping[str, frozenset[str]],
    kernels: Set[str],
) -> tuple[MeasuredCall, ...]:
    """Return the calls with these names, the slowest first."""
    calls = (
        MeasuredCall(
            name, median(times[name]), *_quartiles(times[name]), len(inside[name] & kernels)
        )
        for name in names
    )
    return tuple(sorted(calls, key=lambda call: (-call.time_us, call.name)))


def _usual_ratio(measured: Mapping[str, float], expected: Mapping[str, float]) -> float:
    """Return the median of the ratios of the two times. A kernel weighs as much as the geometric
    mean of its times, so that one whose times differ much weighs little.
    """
    weights = sorted(
        (measured[name] / time, (measured[name] * time) ** 0.5)
        for name, time in expected.items()
        if measured[name] and time
    )
    half = fsum(weight for _, weight in weights) / 2
    for ratio, weight in weights:
        half -= weight
        if half <= 0:
            return ratio
    return 1.0


def _modelled(kernel: KernelFacts, launches: int) -> float:
    """Return the microseconds of one run by the model. The trace tells how often a loop runs whose
    length the compiler does not know.
    """
    return (kernel.time_ns or 0.0) * (kernel.runs if kernel.runs_known else launches) / 1_000


def share_time(spans: Sequence[Span]) -> Mapping[str, float]:
    """Return the microseconds of each instruction: those at work at once share the time equally."""
    points = sorted(
        point
        for number, span in enumerate(spans)
        if span.end_us > span.start_us
        for point in ((span.start_us, True, number), (span.end_us, False, number))
    )
    shares = dict.fromkeys((span.instruction for span in spans), 0.0)
    began: dict[int, float] = {}
    share = last = 0.0  # what one that is always at work has so far
    for time, is_start, number in points:
        if began:
            share += (time - last) / len(began)
        last = time
        if is_start:
            began[number] = share
        else:
            shares[spans[number].instruction] += share - began.pop(number)
    return shares


def _elapsed(run: Run) -> float:
    return max(span.end_us for span in run.spans) - run.spans[0].start_us


def _quartiles(times: Sequence[float]) -> tuple[float, float]:
    if len(times) < 2:
        return times[0], times[0]
    low, _, high = quantiles(times, n=4, method="inclusive")
    return low, high


def _bandwidth(kernels: Sequence[KernelFacts], least_us: float) -> float | None:
    """Return the bytes per microsecond of the kernel that moves most, of those that take at least
    ``least_us``; None if there is none.
    """
    rates = [kernel.bandwidth for kernel in kernels if (kernel.measured_us or 0.0) >= least_us]
    return max((rate for rate in rates if rate), default=None)


def _refusals(analysis: Analysis, bandwidth: float | None) -> tuple[RefusalWorth, ...]:
    """Return what refused pairs cost at this bandwidth, those first that cost most. A pair costs no
    more than its kernels take.
    """
    if bandwidth is None:
        return ()
    limits: dict[int, float] = defaultdict(float)
    numbers = {id(pair): number for number, pair in enumerate(analysis.facts.pairs)}
    for kernel, marks in zip(analysis.facts.kernels, analysis.kernels, strict=True):
        for number in {*marks.began, *marks.ended}:
            limits[number] += kernel.measured_us or 0.0
    refusals = []
    for alike in group_alike(analysis.facts.pairs, lambda pair: pair.reason):
        first = alike[0]
        times = [min(pair.bytes_saved / bandwidth, limits[numbers[id(pair)]]) for pair in alike]
        refusals.append(
            RefusalWorth(
                first.producer.name,
                first.consumer.name,
                first.producer.source or first.consumer.source,
                len(alike),
                sum(pair.bytes_saved for pair in alike),
                fsum(times),
            )
        )
    return tuple(
        sorted(
            (refusal for refusal in refusals if refusal.time_us),
            key=lambda refusal: -refusal.time_us,
        )
    )
