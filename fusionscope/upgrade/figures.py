"""What a compiled program costs, and whether that is the same, better or worse than before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from statistics import quantiles

from msgspec.structs import replace

from fusionscope.capture.capture import LATE, Captured
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain.explain import explain_module
from fusionscope.facts.facts import Facts
from fusionscope.facts.pair_names import names_end
from fusionscope.facts.times import count_figures
from fusionscope.findings.memory.find import find_memory
from fusionscope.findings.memory.savings import RefusedPairs
from fusionscope.history.outcomes import TOGETHER, Outcome
from fusionscope.passes.overrides import PairPattern
from fusionscope.upgrade.below import swap_loops
from fusionscope.upgrade.compile_steps import CompileSteps, compile_steps
from fusionscope.upgrade.strides import strided_bytes
from fusionscope.versions.context import read_gpu, read_target


class Verdict(StrEnum):
    SAME = "same"
    BETTER = "better"
    WORSE = "worse"


class Figure(StrEnum):
    """A figure of a compiled program. The first that differs decides the verdict."""

    FAILURES = "failures"  # the compiler or the program crashes on a CPU
    MEASURED_TIME = "measured-time"
    SWAPS = "swaps"  # compare-and-swap loops in kernels; estimated times know none of these two
    STRIDED_WRITES = "strided-writes"  # of scatters
    TIME = "time"
    BYTES = "bytes"
    LAUNCHES = "launches"
    PEAK = "peak"
    COMPILE_TIME = "compile-time"


# Releases round the description of a device differently, and keep other constants in memory. The
# time to compile varies: it has to double, and by seconds.
_SHARE = 0.01
_COMPILE_TIMES, _COMPILE_S = 2.0, 2.0
# Of measured times: equal loops at other addresses differ by up to a fifth (docs/rerun.md). Three
# quarters of the rounds of one have to be faster than all of the other.
_MEASURED_TIMES = 1.25
_MEASURED_US = 20.0  # what results take to reach Python differs, too
_STRIDED_SHARE = 0.1  # of all bytes that are moved
_OF_RELEASE = re.compile(r"jax(lib|-.*)?$|libtpu$")  # packages whose versions are the release's


class Side(Facts, frozen=True, kw_only=True):
    """A program as one release compiles it. ``problem`` says why the compiler did not finish, and
    is empty if it did. Figures are None where nothing shows them.

    jaxlib: the release
    python: the interpreter that compiled it
    dump: the folder of its dump
    failures: 1 if the compiler or the program crashes on a CPU, 0 if not; null for other devices,
        whose compilers may end because there is no card
    swaps: compare-and-swap loops in the code of its kernels, which take many times as long as an
        atomic operation where many threads write one element; null if there is no code
    launches: launches in a run
    bytes_moved: bytes that these move, as shapes tell
    strided_bytes: bytes that scatters write with a stride on a GPU, which takes several times as
        long; estimated times do not know it. Null on others
    time_us: the estimated time of a run in microseconds, nominal for a CPU
    peak_bytes: the most memory that is alive at once; null if the dump does not show it
    compile_s: seconds to compile it and dump its stages, the shorter of two times if they seemed
        to differ, the limit if it took longer; null if it did not finish
    compile_steps: where these seconds went
    problem: why the compiler did not finish; empty if it did
    runs_us: the shortest of some runs in microseconds, less that of a call that does nothing, for
        each round of measuring; empty if it was not run
    run_problem: why the program does not run; empty if it does, or was not to
    packages: versions of the packages that the program imports, by name
    """

    jaxlib: str
    python: str
    dump: Path
    launches: int
    bytes_moved: int
    failures: int | None = None
    swaps: int | None = None
    strided_bytes: int | None = None
    time_us: float | None
    peak_bytes: int | None
    compile_s: float | None
    compile_steps: CompileSteps
    problem: str
    runs_us: tuple[float, ...] = ()
    run_problem: str = ""
    packages: Mapping[str, str] = {}

    def figure(self, figure: Figure) -> float | None:
        values = (
            self.failures,
            min(self.runs_us, default=None),
            self.swaps,
            self.strided_bytes,
            self.time_us,
            self.bytes_moved,
            self.launches,
            self.peak_bytes,
            self.compile_s,
        )
        return dict(zip(Figure, values, strict=True))[figure]

    def at_least(self, again: Side) -> Side:
        """Return it with the shorter time of two compilations."""
        sides = [side for side in (self, again) if side.compile_s is not None]
        faster = min(sides, key=lambda side: side.compile_s or 0.0, default=self)
        return replace(self, compile_s=faster.compile_s, compile_steps=faster.compile_steps)


class Change(Facts, frozen=True):
    """A figure of both sides.

    figure: ``failures``, ``measured-time``, ``swaps``, ``strided-writes``, ``time``, ``bytes``,
        ``launches``, ``peak`` or ``compile-time``
    before: with the first release; null if it is unknown
    after: with the second release; null if it is unknown
    verdict: ``same``, ``better`` or ``worse``
    """

    figure: Figure
    before: float | None
    after: float | None
    verdict: Verdict


def side_of(captured: Captured, python: str, limit_s: float) -> Side:
    """Return the figures of a dump that the interpreter ``python`` made in at most ``limit_s``
    seconds. Raises ``UnusableInput`` if it cannot be read.
    """
    module, is_late = module_of(captured.directory), captured.problem.startswith(LATE)
    final, gpu = module.read(module.last), read_gpu(module)
    figures = count_figures(final, module.backend, read_target(module))
    try:
        memory = find_memory(module, final, RefusedPairs((), (), ()), gpu)
    except UnusableInput:  # the files about memory are of a form that is not read
        memory = None
    return Side(
        jaxlib=captured.versions.get("jaxlib", ""),
        python=python,
        dump=captured.directory,
        launches=figures.launches,
        bytes_moved=figures.bytes_moved,
        failures=int(captured.problem != "" and not is_late) if module.backend == "cpu" else None,
        swaps=swap_loops(captured.directory) if module.backend == "gpu" else None,
        strided_bytes=strided_bytes(final) if module.backend == "gpu" else None,
        time_us=figures.time_us,
        peak_bytes=memory.peak_bytes if memory is not None else None,
        compile_s=limit_s if is_late else captured.compile_s,
        compile_steps=compile_steps(module),
        problem=captured.problem,
        packages={
            name: version
            for name, version in captured.versions.items()
            if not _OF_RELEASE.match(name)
        },
    )


def module_of(dump: Path) -> DumpedModule:
    """Return the program's module: the largest, if the compiler made small ones beside it."""
    return max(open_dump(dump).modules, key=lambda module: module.last.file.size)


def compare_figures(before: Side, after: Side) -> tuple[Change, ...]:
    return tuple(
        Change(figure, before.figure(figure), after.figure(figure), judge(figure, before, after))
        for figure in Figure
    )


def judge(figure: Figure, before: Side, after: Side) -> Verdict:
    """Return whether a figure is the same, better or worse. What is unknown does not differ."""
    old, new = before.figure(figure), after.figure(figure)
    if old is None or new is None:
        return Verdict.SAME
    least, most = sorted((old, new))
    is_same = most <= least * (1 + _SHARE)
    if figure is Figure.MEASURED_TIME:
        is_same = _are_alike(least, most) or _overlap(before, after)
    elif figure is Figure.STRIDED_WRITES:
        is_same = most - least <= _STRIDED_SHARE * max(before.bytes_moved, after.bytes_moved)
    elif figure in (Figure.LAUNCHES, Figure.SWAPS, Figure.FAILURES):
        is_same = least == most
    elif figure is Figure.COMPILE_TIME:
        is_same = most < least * _COMPILE_TIMES or most < least + _COMPILE_S
    if is_same:
        return Verdict.SAME
    return Verdict.WORSE if new > old else Verdict.BETTER


def is_uncertain(before: Side, after: Side) -> bool:
    """Return whether the shortest runs differ by enough, and the rounds of both overlap: the
    machine is busy.
    """
    if not before.runs_us or not after.runs_us:
        return False
    least, most = sorted(map(min, (before.runs_us, after.runs_us)))
    return not _are_alike(least, most) and _overlap(before, after)


def _are_alike(least: float, most: float) -> bool:
    return most < max(least * _MEASURED_TIMES, least + _MEASURED_US)


def _overlap(before: Side, after: Side) -> bool:
    fast, slow = sorted((before.runs_us, after.runs_us), key=min)
    return quantiles(fast, n=4)[2] >= min(slow)


def overall(changes: tuple[Change, ...]) -> Verdict:
    """Return the verdict on the first figure that differs."""
    return next((change.verdict for change in differing(changes)), Verdict.SAME)


def differing(changes: Iterable[Change]) -> Iterator[Change]:
    """Yield the figures that differ. An estimated time does not count beside a measured one."""
    is_measured = False
    for change in changes:
        if change.figure is Figure.MEASURED_TIME:
            is_measured = None not in (change.before, change.after)
        elif change.figure is Figure.TIME and is_measured:
            continue
        if change.verdict is not Verdict.SAME:
            yield change


def is_fused(side: Side, pattern: PairPattern) -> bool | None:
    """Return whether all pairs that ``pattern`` names are fused; None if there is none."""
    facts = explain_module(module_of(side.dump))
    outcomes: set[str] = {
        pair.outcome
        for pair in facts.pairs
        if names_end(pattern.producer, pair.producer) and names_end(pattern.consumer, pair.consumer)
    } - {Outcome.GONE}
    return outcomes.issubset(TOGETHER) if outcomes else None
