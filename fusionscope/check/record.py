"""What is recorded about a module. Nothing in it depends on names, numbering or printing: a pair is
the opcodes and shapes of its producer and consumer, a kernel the opcodes that it computes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from fusionscope.check.subject import Subject
from fusionscope.dump.names import without_build
from fusionscope.facts.result import KernelFacts, ModuleFacts, PairFacts
from fusionscope.findings.memory.facts import MemoryFacts
from fusionscope.history.kernels import KernelKind
from fusionscope.history.outcomes import TOGETHER, Outcome

_LAYOUT = re.compile(r"\{[^{}]*\}")
_PASS = re.compile(r"\.after_(.+?)\.before_")
_CALLS = (KernelKind.LIBRARY, KernelKind.CUSTOM_CALL)
_MOST = 4  # arguments per line


class ModuleKey(NamedTuple):
    """The identity of a module. ``arguments`` are as in ``ModuleFacts``. In a matrix, ``program``
    and ``target`` alone tell a module: its arguments may change.
    """

    name: str
    arguments: tuple[str, ...]
    device: str
    program: str = ""
    target: str = ""

    def __str__(self) -> str:
        """Return a short form: shapes without shardings, and the device without its figures."""
        if self.program:
            return f"{self.program} on {self.target}"
        return f"{self.name}({shapes_of(self.arguments)}) on {self.device.partition(' (')[0]}"

    @property
    def identity(self) -> ModuleKey:
        """The part of it that another version of the module shares."""
        if not self.program:
            return self
        return ModuleKey("", (), "", self.program, self.target)

    def differs_in(self, second: ModuleKey) -> str:
        """Return the difference in words."""
        words = ["name", "arguments", "device", "program", "target"]
        return " and ".join(w for w, a, b in zip(words, self, second, strict=True) if a != b)


def shapes_of(arguments: tuple[str, ...]) -> str:
    """Return shapes without shardings, the first few of many."""
    shapes = [argument.partition(" sharding=")[0] for argument in arguments]
    if len(shapes) > _MOST:
        shapes[_MOST:] = [f"{len(shapes) - _MOST} more"]
    return ", ".join(shapes)


def key_of(subject: Subject) -> ModuleKey:
    facts, cell = subject.facts, subject.cell
    device = facts.device or facts.backend or "unknown"
    return ModuleKey(without_build(facts.name), facts.arguments, device, cell.program, cell.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRecord:
    """A module as recorded. ``pairs`` counts outcomes by pair, ``passes`` are those that fused most
    of a pair, ``libraries`` counts calls by function. ``peak_bytes``, ``time_us`` (microseconds of
    a run, estimated), ``headroom_us``, by which they are above the bound, and ``spill_bytes`` are
    None if they are unknown. Of ``floor_launches``, such as library calls, the time is the least
    that they take.
    """

    launches: int
    bytes_moved: int
    kernels: dict[str, int]
    libraries: dict[str, int]
    pairs: dict[str, dict[str, int]]
    passes: dict[str, str]
    peak_bytes: int | None = None
    time_us: float | None = None
    headroom_us: float | None = None
    spill_bytes: int | None = None
    floor_launches: int = 0

    @property
    def kernel_count(self) -> int:
        return sum(self.kernels.values()) + sum(self.libraries.values())

    def figure(self, name: str) -> float | None:
        """Return the figure that is called so in files: see ``FIGURES``."""
        value: float | None = getattr(self, FIGURES[name].attribute)
        return value

    def is_same(self, second: ModuleRecord) -> bool:
        """Return whether they say the same, as far as both say something."""
        return (self.kernels, self.libraries, self.pairs, self.passes) == (
            second.kernels,
            second.libraries,
            second.pairs,
            second.passes,
        ) and all(
            None in (figures_of_both := (self.figure(name), second.figure(name)))
            or figures_of_both[0] == figures_of_both[1]
            for name in FIGURES
        )


def figures_of(old: ModuleRecord, new: ModuleRecord, name: str) -> tuple[float, float] | None:
    """Return a figure of both; None if it is unknown of one, or if they are times, and of other
    launches no more than the least is known.
    """
    before, after = old.figure(name), new.figure(name)
    if before is None or after is None:
        return None
    if name in TIMES and old.floor_launches != new.floor_launches:
        return None
    return before, after


class Figure(NamedTuple):
    """A figure of a module: its attribute in a record, its name in reports."""

    attribute: str
    words: str


FIGURES = {
    "launches": Figure("launches", "launches"),
    "bytes": Figure("bytes_moved", "bytes moved"),
    "time": Figure("time_us", "estimated µs"),
    "headroom": Figure("headroom_us", "estimated µs above the bound"),
    "peak": Figure("peak_bytes", "bytes of memory at the peak"),
    "spills": Figure("spill_bytes", "bytes spilled"),
}
TIMES = frozenset({"headroom", "time"})


def record_of(facts: ModuleFacts) -> ModuleRecord:
    """Return the record of a module as it is."""
    pairs: dict[str, Counter[str]] = defaultdict(Counter)
    passes: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in facts.pairs:
        if pair.outcome == Outcome.GONE:
            continue
        key = pair_key(pair)
        pairs[key][str(pair.outcome)] += 1
        if pair.outcome in TOGETHER and pair.stage is not None:
            match = _PASS.search(pair.stage)
            passes[key][match[1] if match else pair.stage] += 1
    kernels = Counter(kernel_key(kernel) for kernel in facts.kernels if kernel.kind not in _CALLS)
    libraries = Counter(kernel.emitter for kernel in facts.kernels if kernel.kind in _CALLS)
    time, memory = facts.summary.time, facts.find(MemoryFacts)
    least = facts.summary.at_best_us
    headroom = time.microseconds - least if time is not None and least is not None else None
    spills = [kernel.spill_bytes for kernel in facts.kernels if kernel.spill_bytes is not None]
    return ModuleRecord(
        launches=facts.summary.launches,
        bytes_moved=facts.summary.bytes_moved,
        kernels=dict(sorted(kernels.items())),
        libraries=dict(sorted(libraries.items())),
        pairs={key: dict(sorted(pairs[key].items())) for key in sorted(pairs)},
        passes={key: passes[key].most_common(1)[0][0] for key in sorted(passes)},
        peak_bytes=memory.peak_bytes if memory is not None else None,
        time_us=round(time.microseconds, 3) if time is not None else None,
        headroom_us=round(headroom, 3) if headroom is not None else None,
        spill_bytes=sum(spills) if spills else None,
        floor_launches=time.floor_launches if time is not None else 0,
    )


def kernel_key(kernel: KernelFacts) -> str:
    """Return a kernel as its kind and opcodes, or the function that it calls."""
    if kernel.kind in _CALLS:
        return kernel.emitter
    return f"{kernel.kind}: {' '.join(sorted(kernel.members))}"


def pair_key(pair: PairFacts) -> str:
    producer, consumer = (
        f"{end.opcode} {_LAYOUT.sub('', end.shape)}" for end in (pair.producer, pair.consumer)
    )
    return f"{producer} -> {consumer}"


def opcodes_of(key: str) -> str:
    return " -> ".join(end.partition(" ")[0] for end in key.split(" -> "))
