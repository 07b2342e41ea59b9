"""The comparison of a module with what it was before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fusionscope.check.expectation import (
    Expectation,
    Growth,
    Violation,
    growth_in_percent,
    in_digits,
)
from fusionscope.check.record import (
    FIGURES,
    ModuleKey,
    ModuleRecord,
    figures_of,
    kernel_key,
    opcodes_of,
    pair_key,
    record_of,
    shapes_of,
)
from fusionscope.check.subject import Subject
from fusionscope.facts.result import PairFacts
from fusionscope.history.outcomes import TOGETHER, Outcome

_FREE = frozenset({"broadcast", "constant", "iota"})  # cheap to duplicate
_APART = Outcome.NOT_FUSED.value
_COMPARED = ("launches", "bytes", "peak")  # figures of the same pairs
_STRICT = (*_COMPARED, "time", "spills")  # what a bound that falls does not change
_ACCEPTED = "--update takes it as the new baseline"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The shares by which the totals of a module with the same pairs may grow, and whether the
    module may improve. If it ``is_strict``, no totals may grow by more, and nothing may be new:
    kernels, library calls, pairs that are not fused.
    """

    share: float = 0.0
    allow_better: bool = False
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Where records are from: a baseline, or the revision or dump that is compared with. If it
    ``is_base``, a module that only one of the two has is no deviation.
    """

    name: str = "the baseline"
    is_base: bool = False


EXACT = Tolerance()
IN_BASELINE = Origin()


@dataclass(frozen=True, slots=True)
class AsBefore(Expectation):
    """The expectation that a module is not worse than its record: no fused pair is separate or
    duplicated, no library took over and, if the pairs are the same, launches, bytes and the
    peak of memory have not grown.
    """

    # ``value`` is None for a module without a record; ``nearest`` is another one of its name.

    key: ClassVar = "baseline"
    compares: ClassVar = True

    module: ModuleKey = field(kw_only=True)
    tolerance: Tolerance = field(kw_only=True)
    nearest: ModuleKey | None = field(kw_only=True)
    origin: Origin = field(kw_only=True, default=IN_BASELINE)

    def __str__(self) -> str:
        return f"{self.module} as in {self.origin.name}"

    @property
    def identity(self) -> str:
        return str(self.module)

    @classmethod
    def expected(cls, value: Any) -> str:
        return "" if isinstance(value, ModuleRecord | None) else "what a module was like"

    @property
    def before(self) -> ModuleRecord:
        assert isinstance(self.value, ModuleRecord)
        return self.value

    def check(self, subject: Subject) -> Iterator[Violation]:
        if self.value is None:
            if not self.origin.is_base:
                what = f"no baseline for this module{self._nearest}; --update writes it"
                yield self.violation(subject, what)
            return
        now = record_of(subject.facts)
        if not self.origin.is_base and (gone := self._gone(now)):
            yield self.violation(subject, f"{gone} {_ACCEPTED}")
        yield from self._lost(subject, now)
        yield from self._duplicated(subject, now)
        yield from self._taken_over(subject, now)
        if self.tolerance.is_strict:
            yield from self._new(subject, now)
        if self.tolerance.is_strict or self._has_same_pairs(now):
            yield from self._grown(subject, now)
        if not self.tolerance.allow_better:
            for key in _moved(now, self.before):
                yield self.violation(subject, f"is fused, and was not: {key}; {_ACCEPTED}")

    def missing(self) -> Iterator[Violation]:
        """Yield the violation if no dump has the module."""
        if not self.origin.is_base:
            what = f"no dump has this module{self._nearest}"
            yield Violation(expectation=self, module="", what=what)

    def missing_notes(self) -> Iterator[str]:
        """Yield a note about a module that no dump has, unless that is a violation."""
        if self.origin.is_base:
            yield f"only {self.origin.name} has this module{self._nearest}"

    @property
    def _nearest(self) -> str:
        if self.nearest is None:
            return ""
        parts = self.module.differs_in(self.nearest)
        return f"; the nearest is {self.nearest}, which differs in {parts}"

    def notes(self, subject: Subject) -> Iterator[str]:
        """Yield mere changes: kinds of pairs and kernels that were added or removed with the
        program, other arguments, and other totals.
        """
        if self.value is None:
            if self.origin.is_base:
                yield f"new: {self.origin.name} has no such module{self._nearest}"
            return
        now, old, arguments = record_of(subject.facts), self.before, subject.facts.arguments
        if self.origin.is_base and (gone := self._gone(now)):
            yield gone
        if arguments != self.module.arguments:
            yield f"arguments {shapes_of(self.module.arguments)} → {shapes_of(arguments)}"
        for what, new_keys, old_keys in (
            ("pairs", now.pairs.keys(), old.pairs.keys()),
            ("kernels", now.kernels.keys(), old.kernels.keys()),
            ("library calls", now.libraries.keys(), old.libraries.keys()),
        ):
            come, gone_keys = sorted(new_keys - old_keys), sorted(old_keys - new_keys)
            if come or gone_keys:
                example = f", such as {(come or gone_keys)[0]}"
                yield f"{len(come)} kinds of {what} are new, {len(gone_keys)} are gone{example}"
        for name, before, after in _figures(old, now, FIGURES):
            if in_digits(before) != in_digits(after):
                yield f"{FIGURES[name].words} {Growth(name, before, after)}"

    def _gone(self, now: ModuleRecord) -> str:
        """Return how many fused pairs no longer exist, if those are more than half: a program that
        has changed allows no statement.
        """
        opcodes = {opcodes_of(key) for key in now.pairs}
        fused = {
            key: n for key, outcomes in self.before.pairs.items() if (n := _together(outcomes))
        }
        gone = sum(count for key, count in fused.items() if opcodes_of(key) not in opcodes)
        if 2 * gone <= sum(fused.values()):
            return ""
        total = sum(fused.values())
        return f"{gone} of {total} pairs that were fused no longer exist: another program?"

    def _lost(self, subject: Subject, now: ModuleRecord) -> Iterator[Violation]:
        passes = self.before.passes
        for key in _moved(self.before, now):
            pass_name = passes.get(key)
            if pass_name is None:
                same = (p for k, p in passes.items() if opcodes_of(k) == opcodes_of(key))
                pass_name = next(same, "")
            by = f" by {pass_name}" if pass_name else ""
            pair = _find(subject.facts.pairs, key, _APART)
            yield self._about(subject, pair, f"was fused{by}, and is not: {key}")

    def _duplicated(self, subject: Subject, now: ModuleRecord) -> Iterator[Violation]:
        twice = Outcome.DUPLICATED.value
        for key, old in self.before.pairs.items():
            new = now.pairs.get(key, {})
            more = new.get(twice, 0) - old.get(twice, 0)
            if key.partition(" ")[0] in _FREE:
                continue
            if more > 0 and new.get("fused", 0) < old.get("fused", 0):
                pair = _find(subject.facts.pairs, key, twice)
                yield self._about(subject, pair, f"is duplicated, and was fused alone: {key}")

    def _taken_over(self, subject: Subject, now: ModuleRecord) -> Iterator[Violation]:
        """Yield new library calls, if something that was fused no longer exists."""
        gone = [
            key
            for key, old in self.before.pairs.items()
            if _together(old) > 0 and sum(now.pairs.get(key, {}).values()) < sum(old.values())
        ]
        for emitter, count in now.libraries.items():
            if gone and count > self.before.libraries.get(emitter, 0):
                what = f"is a new call to {emitter}, and what was fused is gone: {gone[0]}"
                yield self._about_kernel(subject, emitter, what)

    def _new(self, subject: Subject, now: ModuleRecord) -> Iterator[Violation]:
        """Yield kernels, library calls and unfused pairs of which there are more."""
        old = self.before
        for key, count in _more(now.kernels, old.kernels):
            yield self._about_kernel(subject, key, f"is a new kernel{_times(count)}: {key}")
        for key, count in _more(now.libraries, old.libraries):
            yield self._about_kernel(subject, key, f"is a new call{_times(count)} to {key}")
        apart, was_apart = (
            {key: outcomes.get(_APART, 0) for key, outcomes in record.pairs.items()}
            for record in (now, old)
        )
        lost = set(_moved(old, now))
        for key, count in _more(apart, was_apart):
            if key not in lost and not key.startswith("constant "):
                pair = _find(subject.facts.pairs, key, _APART)
                what = f"is a new pair{_times(count)}, and is not fused: {key}"
                yield self._about(subject, pair, what)

    def _has_same_pairs(self, now: ModuleRecord) -> bool:
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

    def _grown(self, subject: Subject, now: ModuleRecord) -> Iterator[Violation]:
        same = " of the same pairs" if self._has_same_pairs(now) else ""
        names = _STRICT if self.tolerance.is_strict else _COMPARED
        for name, old, new in _figures(self.before, now, names):
            if new > old * (1 + self.tolerance.share):
                new_text, old_text = in_digits(new), in_digits(old)
                if new_text == old_text:
                    old_text += f" ({growth_in_percent(old, new)})"
                what = f"{new_text} {FIGURES[name].words}{same}, was {old_text}"
                yield self.violation(subject, what, growth=Growth(name, old, new))

    def _about(self, subject: Subject, pair: PairFacts | None, what: str) -> Violation:
        if pair is None:
            return self.violation(subject, what)
        return self.about_pair(subject, pair, what)

    def _about_kernel(self, subject: Subject, key: str, what: str) -> Violation:
        kernel = [kernel for kernel in subject.facts.kernels if kernel_key(kernel) == key][-1]
        return self.violation(subject, what, about=kernel.name, source=kernel.source)


def _together(outcomes: dict[str, int]) -> int:
    return sum(outcomes.get(outcome.value, 0) for outcome in TOGETHER)


def _more(now: dict[str, int], old: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Yield what there is more of now, and how much more."""
    for key, count in now.items():
        if count > old.get(key, 0):
            yield key, count - old.get(key, 0)


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""


def _figures(
    old: ModuleRecord, new: ModuleRecord, names: Iterable[str]
) -> Iterator[tuple[str, float, float]]:
    """Yield the figures that can be compared."""
    for name in names:
        if (both := figures_of(old, new, name)) is not None:
            yield name, *both


def _moved(old: ModuleRecord, new: ModuleRecord) -> list[str]:
    """Return pairs of ``new`` that are separate and were together in ``old``: first those of the
    same shapes, then those of the same opcodes, unless others took their place.
    """
    moved = []
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
            moved.append(key)
            together, parted = together - parted, 0
        if together > 0:
            gone[opcodes_of(key)] += together
        elif together < 0:
            come[opcodes_of(key)] -= together
        if parted > 0:
            apart[opcodes_of(key)].append(key)
    for opcodes, count in gone.items():
        moved += apart[opcodes][: max(0, count - come[opcodes])]
    return moved


def _find(pairs: Iterable[PairFacts], key: str, outcome: str) -> PairFacts | None:
    """Return the matching pair with the most bytes between producer and consumer."""
    return max(
        (pair for pair in pairs if pair.outcome == outcome and pair_key(pair) == key),
        key=lambda pair: pair.bytes_saved,
        default=None,
    )
