"""What a dump was like before, in a small file, and whether it has become worse since.

Nothing in the file depends on names, numbering or printing: a pair is the opcodes and shapes of its
producer and consumer, a kernel the opcodes that it computes.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fusionscope.check.expectations import Expectation, Violation, Where
from fusionscope.errors import UnusableInput
from fusionscope.explain.result import Explanation, ModuleFacts, PairFacts
from fusionscope.history.kernels import KernelKind
from fusionscope.history.outcomes import TOGETHER, Outcome

SCHEMA = "fusionscope.baseline/1"
_LAYOUT = re.compile(r"\{[^{}]*\}")
_PASS = re.compile(r"\.after_(.+?)\.before_")
_FREE = frozenset({"broadcast", "constant", "iota"})  # as well computed twice
_APART = Outcome.NOT_FUSED.value


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Shares by which bytes and launches of a module with the same pairs may grow unnoticed, and
    whether it may be better than it was."""

    share: float = 0.0
    allow_better: bool = False


@dataclass(frozen=True, slots=True)
class Before:
    """A module as it was. ``pairs`` counts outcomes by pair, ``passes`` are those that fused most
    of a pair, ``libraries`` counts calls by function."""

    launches: int
    bytes_moved: int
    kernels: dict[str, int]
    libraries: dict[str, int]
    pairs: dict[str, dict[str, int]]
    passes: dict[str, str]


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
        facts.totals.launches,
        facts.totals.bytes_moved,
        dict(sorted(kernels.items())),
        dict(sorted(libraries.items())),
        {key: dict(sorted(pairs[key].items())) for key in sorted(pairs)},
        {key: passes[key].most_common(1)[0][0] for key in sorted(passes)},
    )


def _key(pair: PairFacts) -> str:
    producer, consumer = (
        f"{end.opcode} {_LAYOUT.sub('', end.shape)}" for end in (pair.producer, pair.consumer)
    )
    return f"{producer} -> {consumer}"


def _opcodes(key: str) -> str:
    return " -> ".join(end.split()[0] for end in key.split(" -> "))


def write_baseline(explanations: Sequence[Explanation]) -> str:
    """One line for each pair and kernel, in order, so that versions of the file can be merged."""
    modules = {
        facts.name: describe_module(facts) for each in explanations for facts in each.modules
    }
    lines = ["{", f' "schema": {json.dumps(SCHEMA)},', ' "modules": {']
    for last, (name, module) in _with_last(sorted(modules.items())):
        lines.append(f"  {json.dumps(name)}: {{")
        lines.append(f'   "launches": {module.launches},')
        lines.append(f'   "bytes_moved": {module.bytes_moved},')
        for key, values in (
            ("kernels", module.kernels),
            ("libraries", module.libraries),
            ("passes", module.passes),
            ("pairs", module.pairs),
        ):
            lines.append(f"   {json.dumps(key)}: {{")
            for end, (inner, value) in _with_last(sorted(values.items())):
                lines.append(f"    {json.dumps(inner)}: {json.dumps(value)}{'' if end else ','}")
            lines.append("   }" if key == "pairs" else "   },")
        lines.append("  }" if last else "  },")
    return "\n".join([*lines, " }", "}"]) + "\n"


def _with_last(items: Sequence[Any]) -> Iterator[tuple[bool, Any]]:
    for number, each in enumerate(items, 1):
        yield number == len(items), each


def read_baseline(path: Path, tolerance: Tolerance) -> tuple[AsBefore, ...]:
    """What each module of the file has to be like. Raises ``UnusableInput``."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnusableInput(
            f"cannot be read: {error.strerror or error}",
            file=str(path),
            hint="--update writes it",
        ) from None
    except json.JSONDecodeError as error:
        raise UnusableInput(
            f"no baseline: {error.msg}",
            file=str(path),
            line=error.lineno,
            column=error.colno,
            hint="--update writes it anew",
        ) from None
    except (ValueError, RecursionError) as error:
        raise UnusableInput(f"no baseline: {error}", file=str(path)) from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else None
        raise UnusableInput(
            f"no baseline: its schema is {found!r}, expected {SCHEMA!r}",
            file=str(path),
            hint="--update writes it anew",
        )
    try:
        return tuple(
            AsBefore(_read(module), Where(module=_literal(name)), tolerance=tolerance)
            for name, module in content["modules"].items()
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnusableInput(
            f"no baseline: something is missing or of another type ({error})",
            file=str(path),
            hint="--update writes it anew",
        ) from None


def _literal(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _read(module: dict[str, Any]) -> Before:
    return Before(
        int(module["launches"]),
        int(module["bytes_moved"]),
        {str(key): int(count) for key, count in module["kernels"].items()},
        {str(key): int(count) for key, count in module["libraries"].items()},
        {
            str(key): {str(outcome): int(count) for outcome, count in outcomes.items()}
            for key, outcomes in module["pairs"].items()
        },
        {str(key): str(name) for key, name in module["passes"].items()},
    )


@dataclass(frozen=True, slots=True)
class AsBefore(Expectation):
    """No pair that was fused is apart or duplicated, no library took over, and where the pairs are
    the same, launches and bytes have not grown."""

    key: ClassVar = "baseline"

    tolerance: Tolerance = Tolerance()

    def __str__(self) -> str:
        return f"{self.where.module} as in the baseline"

    @classmethod
    def expected(cls, value: Any) -> str:
        return "" if isinstance(value, Before) else "what a module was like"

    @property
    def before(self) -> Before:
        assert isinstance(self.value, Before)
        return self.value

    def check(self, facts: ModuleFacts) -> Iterator[Violation]:
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

    def notes(self, facts: ModuleFacts) -> Iterator[str]:
        """What merely changed: kinds of pairs and kernels that come and go with the program."""
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
        for what, before, after in (
            ("launches", old.launches, now.launches),
            ("bytes moved", old.bytes_moved, now.bytes_moved),
        ):
            if before != after:
                yield f"{what} {before:,} → {after:,}"

    def _gone(self, facts: ModuleFacts, now: Before) -> Iterator[Violation]:
        """Nothing can be said of a program that has become another one."""
        known = {_opcodes(key) for key in now.pairs}
        fused = {key: n for key, found in self.before.pairs.items() if (n := _together(found))}
        gone = sum(count for key, count in fused.items() if _opcodes(key) not in known)
        if 2 * gone > sum(fused.values()):
            yield self.violation(
                facts,
                f"{gone} of {sum(fused.values())} pairs that were fused are there no more: another "
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
            if key.split()[0] in _FREE:
                continue
            if more > 0 and new.get("fused", 0) < old.get("fused", 0):
                pair = _find(facts.pairs, key, twice)
                yield self._about(facts, pair, f"is duplicated, and was fused alone: {key}")

    def _taken_over(self, facts: ModuleFacts, now: Before) -> Iterator[Violation]:
        """New library calls, where something that was fused is not there any more."""
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
                    f"is a new call of {emitter}, and what was fused is gone: {gone[0]}",
                    about=kernel.name,
                    source=kernel.source,
                )

    def _has_same_pairs(self, now: Before) -> bool:
        """And no kernels but the old ones and others in the place of some: an operation that is
        new, and that no other one reads, is a part of no pair."""
        old = self.before
        if now.pairs.keys() != old.pairs.keys() or any(
            sum(now.pairs[key].values()) != sum(old.pairs[key].values()) for key in now.pairs
        ):
            return False
        is_one_gone = any(now.kernels.get(key, 0) < count for key, count in old.kernels.items())
        return is_one_gone or now.kernels == old.kernels

    def _grown(self, facts: ModuleFacts, now: Before) -> Iterator[Violation]:
        for what, old, new in (
            ("launches", self.before.launches, now.launches),
            ("bytes moved", self.before.bytes_moved, now.bytes_moved),
        ):
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
            advice=pair.advice,
        )


def _together(outcomes: dict[str, int]) -> int:
    return sum(outcomes.get(each.value, 0) for each in TOGETHER)


def _moved(old: Before, new: Before) -> list[str]:
    """Pairs of ``new`` that are apart and were together in ``old``: first those of the same shapes,
    then those of the same opcodes, as far as no others of these took the place."""
    found = []
    gone: Counter[str] = Counter()
    come: Counter[str] = Counter()
    apart: dict[str, list[str]] = defaultdict(list)
    for key in dict.fromkeys([*old.pairs, *new.pairs]):
        if key.startswith("constant "):  # which is read from memory or not, as it comes
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
    """The one with most bytes between the two."""
    return max(
        (pair for pair in pairs if pair.outcome == outcome and _key(pair) == key),
        key=lambda pair: pair.bytes_saved,
        default=None,
    )
