"""Compares dumps with a small file that records how they were before.

A module is identified by its name, its arguments and its device. Nothing else in the file depends
on names, numbering or printing: a pair is the opcodes and shapes of its producer and consumer, a
kernel the opcodes that it computes.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from operator import ne
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from fusionscope.check.expectations import Expectation, Violation
from fusionscope.explain.result import Explanation, ModuleFacts, PairFacts
from fusionscope.history.kernels import KernelKind
from fusionscope.history.outcomes import TOGETHER, Outcome
from fusionscope.system.user_files import read_json

SCHEMA = "fusionscope.baseline/2"
_LAYOUT = re.compile(r"\{[^{}]*\}")
_PASS = re.compile(r"\.after_(.+?)\.before_")
_FREE = frozenset({"broadcast", "constant", "iota"})  # cheap to duplicate
_APART = Outcome.NOT_FUSED.value
_MOST = 4  # arguments per line


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The shares by which the totals of a module with the same pairs may grow, and whether
    the module may improve.
    """

    share: float = 0.0
    allow_better: bool = False


class ModuleKey(NamedTuple):
    """The identity of a module. ``arguments`` are as in ``ModuleFacts``."""

    name: str
    arguments: tuple[str, ...]
    device: str

    def __str__(self) -> str:
        """Return a short form: shapes without shardings, and the device without its figures."""
        shapes = [each.partition(" sharding=")[0] for each in self.arguments]
        if len(shapes) > _MOST:
            shapes[_MOST:] = [f"{len(shapes) - _MOST} more"]
        return f"{self.name}({', '.join(shapes)}) on {self.device.partition(' (')[0]}"

    def differs_in(self, other: ModuleKey) -> str:
        """Return the difference in words."""
        words = ["name", "arguments", "device"]
        return " and ".join(w for w, a, b in zip(words, self, other, strict=True) if a != b)


def key_of(facts: ModuleFacts) -> ModuleKey:
    return ModuleKey(facts.name, facts.arguments, facts.device or facts.backend or "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """A module as recorded. ``pairs`` counts outcomes by pair, ``passes`` are those that fused most
    of a pair, ``libraries`` counts calls by function. ``peak_bytes`` is None if it was unknown.
    """

    launches: int
    bytes_moved: int
    kernels: dict[str, int]
    libraries: dict[str, int]
    pairs: dict[str, dict[str, int]]
    passes: dict[str, str]
    peak_bytes: int | None = None


def describe_module(facts: ModuleFacts) -> Before:
    pairs: dict[str, Counter[str]] = defaultdict(Counter)
    passes: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in facts.pairs:
        if pair.outcome == Outcome.GONE:
            continue
        key = _key(pair)
        pairs[key][str(pair.outcome)] += 1
        if pair.outcome in TOGETHER and pair.stage is not None:
            found = _PASS.search(pair.stage)
            passes[key][found[1] if found else pair.stage] += 1
    kernels = Counter(
        f"{kernel.kind}: {' '.join(sorted(kernel.members))}"
        for kernel in facts.kernels
        if kernel.kind not in (KernelKind.LIBRARY, KernelKind.CUSTOM_CALL)
    )
    libraries = Counter(
        kernel.emitter
        for kernel in facts.kernels
        if kernel.kind in (KernelKind.LIBRARY, KernelKind.CUSTOM_CALL)
    )
    return Before(
        launches=facts.totals.launches,
        bytes_moved=facts.totals.bytes_moved,
        kernels=dict(sorted(kernels.items())),
        libraries=dict(sorted(libraries.items())),
        pairs={key: dict(sorted(pairs[key].items())) for key in sorted(pairs)},
        passes={key: passes[key].most_common(1)[0][0] for key in sorted(passes)},
        peak_bytes=facts.memory.peak_bytes if facts.memory is not None else None,
    )


def _key(pair: PairFacts) -> str:
    producer, consumer = (
        f"{end.opcode} {_LAYOUT.sub('', end.shape)}" for end in (pair.producer, pair.consumer)
    )
    return f"{producer} -> {consumer}"


def _opcodes(key: str) -> str:
    return " -> ".join(end.partition(" ")[0] for end in key.split(" -> "))


def write_baseline(explanations: Sequence[Explanation]) -> str:
    """Return all modules as text, including several with the same key. There is one line for each
    pair and kernel, sorted, so that versions of the file can be merged.
    """
    modules = [(key_of(facts), describe_module(facts)) for facts in _modules(explanations)]
    lines = ["{", f' "schema": {json.dumps(SCHEMA)},', ' "modules": [']
    for last, (key, module) in _with_last(sorted(modules, key=lambda module: module[0])):
        lines.append("  {")
        lines.append(f'   "name": {json.dumps(key.name)},')
        lines.append(f'   "arguments": {json.dumps(key.arguments)},')
        lines.append(f'   "device": {json.dumps(key.device)},')
        lines.append(f'   "launches": {module.launches},')
        lines.append(f'   "bytes_moved": {module.bytes_moved},')
        if module.peak_bytes is not None:
            lines.append(f'   "peak_bytes": {module.peak_bytes},')
        for part, values in (
            ("kernels", module.kernels),
            ("libraries", module.libraries),
            ("passes", module.passes),
            ("pairs", module.pairs),
        ):
            lines.append(f"   {json.dumps(part)}: {{")
            for end, (inner, value) in _with_last(sorted(values.items())):
                lines.append(f"    {json.dumps(inner)}: {json.dumps(value)}{'' if end else ','}")
            lines.append("   }" if part == "pairs" else "   },")
        lines.append("  }" if last else "  },")
    return "\n".join([*lines, " ]", "}"]) + "\n"


def _modules(explanations: Iterable[Explanation]) -> Iterator[ModuleFacts]:
    """Yield modules in the order in which they were compiled."""
    for each in explanations:
        yield from sorted(each.modules, key=lambda facts: facts.number)


def _with_last(items: Sequence[Any]) -> Iterator[tuple[bool, Any]]:
    for number, each in enumerate(items, 1):
        yield number == len(items), each


@dataclass(frozen=True, slots=True)
class Baseline:
    """Recorded modules, in the order of the file."""

    modules: tuple[tuple[ModuleKey, Before], ...]
    tolerance: Tolerance = Tolerance()

    def compare(
        self, explanations: Sequence[Explanation]
    ) -> Iterator[tuple[AsBefore, ModuleFacts | None]]:
        """Yield each module with its recorded one. Of several with one key, unchanged ones are
        paired first, then the others in order. A module may be only in the baseline, or only in a
        dump.
        """
        before: dict[ModuleKey, list[Before]] = defaultdict(list)
        for key, module in self.modules:
            before[key].append(module)
        now: dict[ModuleKey, list[ModuleFacts]] = defaultdict(list)
        for facts in _modules(explanations):
            now[key_of(facts)].append(facts)
        for key in dict.fromkeys([*before, *now]):
            left, changed = list(before[key]), []
            for facts in now[key]:
                if (same := describe_module(facts)) in left:
                    left.remove(same)
                    yield self._expectation(key, same), facts
                else:
                    changed.append(facts)
            for old, new in zip_longest(left, changed):
                others = now if new is None else before
                yield self._expectation(key, old, _find_nearest(key, others)), new

    def _expectation(
        self, key: ModuleKey, old: Before | None, nearest: ModuleKey | None = None
    ) -> AsBefore:
        return AsBefore(old, module=key, tolerance=self.tolerance, nearest=nearest)


def _find_nearest(key: ModuleKey, others: Iterable[ModuleKey]) -> ModuleKey | None:
    """Return the key of that name that has most in common with ``key``."""
    named = [each for each in others if each.name == key.name and each != key]
    return min(named, key=lambda each: sum(map(ne, key, each)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Module(Before):
    """A module in the file: its key, and its record."""

    name: str
    arguments: tuple[str, ...]
    device: str


class _File(msgspec.Struct):
    schema: Literal["fusionscope.baseline/2"]
    modules: list[_Module]


def read_baseline(path: Path, tolerance: Tolerance) -> Baseline:
    """Read a baseline. Raises ``UnusableInput`` with the line."""
    file = read_json(path, _File, hint="--update rewrites it")
    names = [each.name for each in fields(Before)]
    return Baseline(
        tuple(
            (
                ModuleKey(each.name, each.arguments, each.device),
                Before(**{name: getattr(each, name) for name in names}),
            )
            for each in file.value.modules
        ),
        tolerance,
    )


@dataclass(frozen=True, slots=True)
class AsBefore(Expectation):
    """The expectation that a module is not worse than its record: no fused pair is separate or
    duplicated, no library took over and, if the pairs are the same, launches, bytes and the
    peak of memory have not grown.
    """

    # ``value`` is None for a module without a record; ``nearest`` is another one of its name.

    key: ClassVar = "baseline"

    module: ModuleKey = field(kw_only=True)
    tolerance: Tolerance = field(kw_only=True)
    nearest: ModuleKey | None = field(kw_only=True)

    def __str__(self) -> str:
        return f"{self.module} as in the baseline"

    @classmethod
    def expected(cls, value: Any) -> str:
        return "" if isinstance(value, Before | None) else "what a module was like"

    @property
    def before(self) -> Before:
        assert isinstance(self.value, Before)
        return self.value

    def check(self, facts: ModuleFacts) -> Iterator[Violation]:
        if self.value is None:
            what = f"no baseline for this module{self._nearest}; --update writes it"
            yield self.violation(facts, what)
            return
        now = describe_module(facts)
        yield from self._gone(facts, now)
        yield from self._lost(facts, now)
        yield from self._duplicated(facts, now)
        yield from self._taken_over(facts, now)
        if self._has_same_pairs(now):
            yield from self._grown(facts, now)
        if not self.tolerance.allow_better:
            for key in _moved(now, self.before):
                what = f"is fused, and was not: {key}"
                yield self.violation(facts, f"{what}; --update takes that as the new baseline")

    def missing(self) -> Violation:
        """Return the violation if no dump has the module."""
        return Violation(
            expectation=self, module="", what=f"no dump has this module{self._nearest}"
        )

    @property
    def _nearest(self) -> str:
        if self.nearest is None:
            return ""
        parts = self.module.differs_in(self.nearest)
        return f"; the nearest is {self.nearest}, which differs in {parts}"

    def notes(self, facts: ModuleFacts) -> Iterator[str]:
        """Yield mere changes: kinds of pairs and kernels that were added or removed with the
        program.
        """
        if self.value is None:
            return
        now, old = describe_module(facts), self.before
        for what, new_keys, old_keys in (
            ("pairs", now.pairs.keys(), old.pairs.keys()),
            ("kernels", now.kernels.keys(), old.kernels.keys()),
            ("library calls", now.libraries.keys(), old.libraries.keys()),
        ):
            come, gone = sorted(new_keys - old_keys), sorted(old_keys - new_keys)
            if come or gone:
                example = f", such as {(come or gone)[0]}"
                yield f"{len(come)} kinds of {what} are new, {len(gone)} are gone{example}"
        for what, before, after in _figures(old, now):
            if before != after:
                yield f"{what} {before:,} → {after:,}"

    def _gone(self, facts: ModuleFacts, now: Before) -> Iterator[Violation]:
        """Yield lost fusions. A program that has changed allows no statement."""
        known = {_opcodes(key) for key in now.pairs}
        fused = {key: n for key, found in self.before.pairs.items() if (n := _together(found))}
        gone = sum(count for key, count in fused.items() if _opcodes(key) not in known)
        if 2 * gone > sum(fused.values()):
            yield self.violation(
                facts,
                f"{gone} of {sum(fused.values())} pairs that were fused no longer exist: another "
                "program? --update takes it as the new baseline",
            )

    def _lost(self, facts: ModuleFacts, now: Before) -> Iterator[Violation]:
        for key in _moved(self.before, now):
            done = self.before.passes.get(key)
            if done is None:
                done = next(
                    (p for k, p in self.before.passes.items() if _opcodes(k) == _opcodes(key)), ""
                )
            by = f" by {done}" if done else ""
            pair = _find(facts.pairs, key, _APART)
            yield self._about(facts, pair, f"was fused{by}, and is not: {key}")

    def _duplicated(self, facts: ModuleFacts, now: Before) -> Iterator[Violation]:
        twice = Outcome.DUPLICATED.value
        for key, old in self.before.pairs.items():
            new = now.pairs.get(key, {})
            more = new.get(twice, 0) - old.get(twice, 0)
            if key.partition(" ")[0] in _FREE:
                continue
            if more > 0 and new.get("fused", 0) < old.get("fused", 0):
                pair = _find(facts.pairs, key, twice)
                yield self._about(facts, pair, f"is duplicated, and was fused alone: {key}")

    def _taken_over(self, facts: ModuleFacts, now: Before) -> Iterator[Violation]:
        """Yield new library calls, if something that was fused no longer exists."""
        gone = [
            key
            for key, old in self.before.pairs.items()
            if _together(old) > 0 and sum(now.pairs.get(key, {}).values()) < sum(old.values())
        ]
        for emitter, count in now.libraries.items():
            if gone and count > self.before.libraries.get(emitter, 0):
                kernel = next(each for each in facts.kernels if each.emitter == emitter)
                yield self.violation(
                    facts,
                    f"is a new call to {emitter}, and what was fused is gone: {gone[0]}",
                    about=kernel.name,
                    source=kernel.source,
                )

    def _has_same_pairs(self, now: Before) -> bool:
        """Return whether pairs are the same, and kernels were at most replaced: a new operation
        that no other one reads is not part of a pair.
        """
        old = self.before
        if now.pairs.keys() != old.pairs.keys() or any(
            sum(now.pairs[key].values()) != sum(old.pairs[key].values()) for key in now.pairs
        ):
            return False
        is_one_gone = any(now.kernels.get(key, 0) < count for key, count in old.kernels.items())
        return is_one_gone or now.kernels == old.kernels

    def _grown(self, facts: ModuleFacts, now: Before) -> Iterator[Violation]:
        for what, old, new in _figures(self.before, now):
            if new > old * (1 + self.tolerance.share):
                yield self.violation(facts, f"{new:,} {what} of the same pairs, was {old:,}")

    def _about(self, facts: ModuleFacts, pair: PairFacts | None, what: str) -> Violation:
        if pair is None:
            return self.violation(facts, what)
        return self.violation(
            facts,
            what,
            about=f"{pair.producer.name} -> {pair.consumer.name}",
            source=pair.consumer.source or pair.producer.source,
            reason=pair.reason,
            because=pair.title or pair.message,
            evidence=pair.evidence,
        )


def _together(outcomes: dict[str, int]) -> int:
    return sum(outcomes.get(each.value, 0) for each in TOGETHER)


def _figures(old: Before, new: Before) -> Iterator[tuple[str, int, int]]:
    """Yield the totals that both know."""
    yield "launches", old.launches, new.launches
    yield "bytes moved", old.bytes_moved, new.bytes_moved
    if old.peak_bytes is not None and new.peak_bytes is not None:
        yield "bytes of memory at the peak", old.peak_bytes, new.peak_bytes


def _moved(old: Before, new: Before) -> list[str]:
    """Return pairs of ``new`` that are separate and were together in ``old``: first those of the
    same shapes, then those of the same opcodes, unless others took their place.
    """
    found = []
    gone: Counter[str] = Counter()
    come: Counter[str] = Counter()
    apart: dict[str, list[str]] = defaultdict(list)
    for key in dict.fromkeys([*old.pairs, *new.pairs]):
        if key.startswith("constant "):  # whether it is read from memory varies
            continue
        before, after = old.pairs.get(key, {}), new.pairs.get(key, {})
        together = _together(before) - _together(after)
        parted = after.get(_APART, 0) - before.get(_APART, 0)
        if together > 0 and parted > 0:
            found.append(key)
            together, parted = together - parted, 0
        if together > 0:
            gone[_opcodes(key)] += together
        elif together < 0:
            come[_opcodes(key)] -= together
        if parted > 0:
            apart[_opcodes(key)].append(key)
    for opcodes, count in gone.items():
        found += apart[opcodes][: max(0, count - come[opcodes])]
    return found


def _find(pairs: Iterable[PairFacts], key: str, outcome: str) -> PairFacts | None:
    """Return the matching pair with the most bytes between producer and consumer."""
    return max(
        (pair for pair in pairs if pair.outcome == outcome and _key(pair) == key),
        key=lambda pair: pair.bytes_saved,
        default=None,
    )
