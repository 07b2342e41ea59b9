"""Candidates for changes: flags of the compiler, and rules of its passes.

Whether one of them helps is unknown until it was tried.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fusionscope.dump import DumpedModule
from fusionscope.dump.debug_options import FUSION_FLAGS, UPCASTING, FusionFlag
from fusionscope.dump.fusion_passes import FUSION_PASSES, Purpose
from fusionscope.facts.result import PairFacts
from fusionscope.facts.suggestions import Suggestion, SuggestionKind
from fusionscope.passes.overrides import PairPattern
from fusionscope.passes.rule import Rule
from fusionscope.rules.changes import NO_CHANGES, Changes, read_changes
from fusionscope.versions.compiler import Compiler

DISABLING = "xla_disable_hlo_passes"
EXTRA = "xla_backend_extra_options"
# Options of a backend are not flags of their own: their names, and the passes that read them.
EXTRA_OPTIONS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "cpu": {"xla_cpu_use_multi_output_fusion": frozenset({"fusion", "cpu_multi_output_fusion"})},
}
_OPPOSITE = {"true": ("false",), "false": ("true",)}
# Passes that only make fusions: without any of them the module still compiles.
_CAN_BE_LEFT_OUT = (Purpose.LIBRARY, Purpose.MERGES, Purpose.REWRITES)
_NARROW = frozenset({"bf16", "f16"})
_MOST_ALIKE = 8  # pairs that one suggestion allows by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A change to try.

    ``flags`` are the new values of flags, ``changes`` those of rules; one of the two is empty.
    ``passes`` are all that the change concerns, empty if they are unknown. ``pairs`` are the
    refused producers and consumers, by name, for which it is tried; a flag is for all of them.
    """

    kind: SuggestionKind
    change: str
    passes: frozenset[str]
    flags: Mapping[str, tuple[str, ...]]
    changes: Changes = NO_CHANGES
    pairs: tuple[tuple[str, str], ...] = ()

    def joined(self, second: Candidate) -> Candidate | None:
        """Return both changes as one; None if they are not of the same kind, or set one flag."""
        if self.kind is not second.kind or self.flags.keys() & second.flags.keys():
            return None
        return Candidate(
            kind=self.kind,
            change=f"{self.change} {second.change}",
            passes=self.passes | second.passes,
            flags={**self.flags, **second.flags},
            changes=self.changes | second.changes,
            pairs=(*self.pairs, *second.pairs),
        )

    def allowing(self, pairs: frozenset[tuple[str, str]]) -> Candidate | None:
        """Return the change without what it allows besides ``pairs``: ``rerun`` refuses to allow
        what is not fused then. None if nothing is left.
        """
        allowed = tuple(pattern for pattern in self.changes.allowed if pattern in pairs)
        changes = replace(self.changes, allowed=allowed)
        if changes == self.changes:
            return self
        return (
            replace(self, changes=changes, change=" ".join(_options(changes))) if changes else None
        )


def read_candidate(suggestion: Suggestion) -> Candidate:
    """Return the change of a suggestion, to try it again. It may be for any pass."""
    words = shlex.split(suggestion.change)
    if suggestion.kind is SuggestionKind.FLAG:
        pieces = (word.removeprefix("--").partition("=") for word in words)
        flags = {name: tuple(filter(None, values.split(","))) for name, _, values in pieces}
        changes = NO_CHANGES
    else:
        values_by_option: dict[str, list[str]] = defaultdict(list)
        for option, value in zip(words[::2], words[1::2], strict=True):
            values_by_option[option].append(value)
        options = ("--set", "--disable", "--allow", "--forbid")
        flags, changes = {}, read_changes(*(values_by_option[option] for option in options))
    return Candidate(
        kind=suggestion.kind,
        change=suggestion.change,
        passes=frozenset(),
        flags=flags,
        changes=changes,
        pairs=suggestion.pairs,
    )


def flag_candidates(module: DumpedModule) -> Iterator[Candidate]:
    """Yield each flag that affects fusion, with each other value that makes sense for it.

    Raises ``UnusableInput`` if the flags of the dump cannot be read.
    """
    flags = module.flags
    values = flags.values if flags is not None else {}
    idle = frozenset() if _has_narrow_products(module) else frozenset({UPCASTING})
    for flag in FUSION_FLAGS:
        if flag.backend == module.backend:
            current = values.get(flag.name, flag.default)
            for alternative in _others(flag, current):
                turned = _turned(flag, current, alternative) - idle
                yield _of_flag(flag.name, alternative, flag.passes | turned)
    options = values.get(EXTRA, ())
    for name, passes in EXTRA_OPTIONS.get(module.backend or "", {}).items():
        if name not in {option.partition("=")[0] for option in options}:
            yield _of_flag(EXTRA, (*options, name), passes)
    disabled = values.get(DISABLING, ())
    ran = {stage.name.after for stage in module.stages}
    for fusion_pass in FUSION_PASSES:
        if (
            fusion_pass.backend == module.backend
            and fusion_pass.purpose in _CAN_BE_LEFT_OUT
            and fusion_pass.in_files in ran
            and fusion_pass.in_files not in disabled
        ):
            yield _of_flag(
                DISABLING, (*disabled, fusion_pass.in_files), frozenset({fusion_pass.name})
            )


def _has_narrow_products(module: DumpedModule) -> bool:
    return any(
        operand.shape.element_type in _NARROW
        for instruction in module.read(module.stages[0]).walk()
        if instruction.opcode in ("convolution", "dot")
        for operand in instruction.operands
    )


def _others(flag: FusionFlag, current: tuple[str, ...] | None) -> Iterator[tuple[str, ...]]:
    if current is None:  # the flag need not exist in the version that made the dump
        return
    if len(current) == 1 and current[0] in _OPPOSITE:
        yield _OPPOSITE[current[0]]
    yield from (alternative for alternative in flag.others if set(alternative) != set(current))


def _turned(
    flag: FusionFlag, current: tuple[str, ...] | None, alternative: tuple[str, ...]
) -> frozenset[str]:
    """Return the passes that run with only one of two values."""
    values = current or ()
    return frozenset(
        name for value, name in flag.replaced if (value in values) is not (value in alternative)
    )


def _of_flag(name: str, values: tuple[str, ...], passes: frozenset[str]) -> Candidate:
    return Candidate(
        kind=SuggestionKind.FLAG,
        change=f"--{name}={','.join(values)}",
        passes=passes,
        flags={name: values},
    )


def rule_candidates(
    compiler: Compiler, alike: Sequence[PairFacts], names: frozenset[str]
) -> Iterator[Candidate]:
    """Yield changes of the rule that refused pairs which look ``alike``: an exception for these
    pairs, another threshold, or the rule disabled. Rules that keep results correct are not changed.

    ``names`` are those, before fusion, of the instructions that are there when the first pass runs.
    """
    reason = alike[0].reason
    rule = compiler.find_rule(reason) if reason is not None else None
    if rule is None or rule.is_legality or rule.only_allows:
        return
    asking = frozenset(
        fusion_pass.name
        for fusion_pass in compiler.passes
        if fusion_pass.book.find(rule.id) is not None
    )
    pairs = tuple(dict.fromkeys((pair.producer.name, pair.consumer.name) for pair in alike))
    overriding = frozenset(
        fusion_pass.name for fusion_pass in compiler.passes if fusion_pass.known.takes_overrides
    )
    if asking & overriding and len(pairs) <= _MOST_ALIKE:
        patterns = tuple(PairPattern(*pair) for pair in pairs if names.issuperset(pair))
        if patterns:
            yield _of_rule(Changes(allowed=patterns), overriding, pairs)
    for name, value in _thresholds(rule, alike):
        yield _of_rule(Changes(thresholds=((rule.id, name, value),)), asking, pairs)
    yield _of_rule(Changes(disabled=(rule.id,)), asking, pairs)


def keep_candidate(values: Iterable[str]) -> Candidate:
    """Return the change that keeps ``values``, which several kernels compute: no reader of them
    computes them.
    """
    changes = Changes(forbidden=tuple(PairPattern(value, "*") for value in values))
    return _of_rule(changes, frozenset(), ())


def _thresholds(rule: Rule, alike: Iterable[PairFacts]) -> Iterator[tuple[str, int]]:
    """Yield each threshold with the nearest value that lets all these pairs pass: the largest
    figure that was compared with it. A minimum becomes 0.
    """
    for name in rule.thresholds:
        if name.startswith("min_"):
            yield name, 0
            continue
        figures = [
            value
            for pair in alike
            for figure, value in pair.numbers
            if isinstance(value, int) and figure not in rule.thresholds
        ]
        if figures and max(figures) > rule.thresholds[name]:
            yield name, max(figures)


def _of_rule(
    changes: Changes, passes: frozenset[str], pairs: tuple[tuple[str, str], ...]
) -> Candidate:
    return Candidate(
        kind=SuggestionKind.RULE,
        change=" ".join(_options(changes)),
        passes=passes,
        flags={},
        changes=changes,
        pairs=pairs,
    )


def _options(changes: Changes) -> Iterator[str]:
    """Yield the options of ``explain`` and ``rerun`` for them."""
    for id, name, value in changes.thresholds:
        yield f"--set {id}.{name}={value}"
    for id in changes.disabled:
        yield f"--disable {id}"
    for pattern in changes.allowed:
        yield f"--allow {shlex.quote(str(pattern))}"
    for pattern in changes.forbidden:
        yield f"--forbid {shlex.quote(str(pattern))}"
