"""A user's changes of rules: thresholds, disabled rules, pairs to fuse or to keep apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fusionscope.errors import UnusableInput, quoted, shorten
from fusionscope.passes.fusion_pass import FusionPass
from fusionscope.passes.overrides import Allowed, Forbidden, PairPattern
from fusionscope.rules.pages import check_id
from fusionscope.versions import known
from fusionscope.versions.compiler import Compiler

_NEEDED = "fusion-wrapper"
_NAMED = 4  # operations of a kernel
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes. ``thresholds`` are rule, name and value. ``disabled`` are ids of rules and names
    of passes to skip. ``kernels`` are groups of operation names, one kernel each; no rule applies
    to them.
    """

    thresholds: tuple[tuple[str, str, int], ...] = ()
    disabled: tuple[str, ...] = ()
    allowed: tuple[PairPattern, ...] = ()
    forbidden: tuple[PairPattern, ...] = ()
    kernels: tuple[tuple[str, ...], ...] = ()

    def __bool__(self) -> bool:
        return self != NO_CHANGES

    def __str__(self) -> str:
        return ", ".join(
            [f"{id}.{name}={value}" for id, name, value in self.thresholds]
            + [f"without {id}" for id in self.disabled]
            + [f"allow {pattern}" for pattern in self.allowed]
            + [f"forbid {pattern}" for pattern in self.forbidden]
            + [f"one kernel of {_enumerated(kernel)}" for kernel in self.kernels]
        )

    def __or__(self, second: Changes) -> Changes:
        return Changes(
            self.thresholds + second.thresholds,
            self.disabled + second.disabled,
            self.allowed + second.allowed,
            self.forbidden + second.forbidden,
            self.kernels + second.kernels,
        )

    def apply(self, compiler: Compiler) -> Compiler:
        """Return ``compiler`` with these changes. Raises ``UnusableInput`` without a threshold."""
        changed = replace(compiler, passes=tuple(map(self._changed, compiler.passes)))
        return changed.with_overrides(Forbidden(self.forbidden), Allowed(self.allowed))

    def within(self, compiler: Compiler) -> Changes:
        """Return the changes without those of rules and passes that ``compiler`` lacks."""
        passes = {fusion_pass.name for fusion_pass in compiler.passes}

        def has(id: str) -> bool:
            return id in passes or compiler.find_rule(id) is not None

        return replace(
            self,
            thresholds=tuple(threshold for threshold in self.thresholds if has(threshold[0])),
            disabled=tuple(filter(has, self.disabled)),
        )

    def _changed(self, fusion_pass: FusionPass) -> FusionPass:
        book = fusion_pass.book
        for id, name, value in self.thresholds:
            book = book.with_threshold(id, name, value)
        for id in self.disabled:
            book = book.without(id)
        return fusion_pass.with_book(book)


NO_CHANGES = Changes()


def read_changes(
    set_: Iterable[str] = (),
    disable: Iterable[str] = (),
    allow: Iterable[str] = (),
    forbid: Iterable[str] = (),
) -> Changes:
    """Read options of the command line as changes. Raises ``UnusableInput``."""
    return Changes(
        tuple(_threshold(*text.partition("=")[::2]) for text in set_),
        tuple(map(_known, disable)),
        tuple(_pattern("--allow", text) for text in allow),
        tuple(_pattern("--forbid", text) for text in forbid),
    )


def _enumerated(names: Sequence[str]) -> str:
    if len(names) > _NAMED:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    return " and ".join(names)


def _known(id: str) -> str:
    passes = {
        fusion_pass.name for compiler in known.all_compilers() for fusion_pass in compiler.passes
    }
    if id == _NEEDED:
        raise UnusableInput(f"--disable {id}: without this pass results are wrong")
    return id if id in passes else check_id(id)


def _threshold(place: str, value: str) -> tuple[str, str, int]:
    id, _, name = place.strip().rpartition(".")
    if not (id and _known(id)) or not _NUMBER.fullmatch(value.strip()):
        raise UnusableInput(
            f"--set {shorten(place)}={shorten(value)}: expected RULE.NAME=N, N a whole number of "
            "at most 18 digits"
        )
    versions = [rule for compiler in known.all_compilers() if (rule := compiler.find_rule(id))]
    names = dict.fromkeys(name for rule in versions for name in rule.thresholds)
    if name not in names:
        there = ", ".join(names) or "none at all"
        raise UnusableInput(
            f"--set {shorten(place)}: {id} has no threshold {quoted(name)}, it has {there}"
        )
    return id, name, int(value)


def _pattern(option: str, text: str) -> PairPattern:
    producer, arrow, consumer = (part.strip() for part in text.partition("->"))
    if not (producer and arrow and consumer) or "->" in consumer:
        raise UnusableInput(f"{option} {quoted(text)}: expected 'PRODUCER -> CONSUMER'")
    return PairPattern(producer.lstrip("%"), consumer.lstrip("%"))
