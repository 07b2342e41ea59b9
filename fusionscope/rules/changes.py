"""Rules that a user changed: other thresholds, rules left out, pairs allowed or forbidden."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar, NamedTuple

from fusionscope.errors import UnusableInput
from fusionscope.hlo import Module
from fusionscope.hlo.grammar import shorten
from fusionscope.rules.base import PairRule
from fusionscope.rules.books import BOOKS, Books
from fusionscope.rules.graph import MutableInstruction, MutableModule
from fusionscope.rules.legacy_gpu.fusion import DUPLICATING
from fusionscope.rules.rule import Decision
from fusionscope.rules.state import FusionPair

# The passes whose rules pairs are asked of.
TAKING_WISHES = ("fusion", DUPLICATING, "priority-fusion")
_NEEDED = "fusion-wrapper"
_NUMBER = re.compile(r"[0-9]{1,18}")


class PairPattern(NamedTuple):
    """Producer and consumer by name or opcode, with ``*`` and ``?``."""

    producer: str
    consumer: str

    def __str__(self) -> str:
        return f"{self.producer} -> {self.consumer}"

    def fits(self, pair: FusionPair) -> bool:
        """Whether it names the producer, or what makes the value in it, and what reads that in the
        consumer."""
        return any(_is_named(maker, self.producer) for maker in _makers(pair)) and any(
            _is_named(reader, self.consumer) for reader in _readers(pair)
        )


def unfitting(patterns: Iterable[PairPattern], module: Module) -> list[PairPattern]:
    """Those that fit no pair of ``module``. Raises ``UnusableInput`` where that contradicts
    itself."""
    left = list(patterns)
    for instruction in MutableModule(module).walk() if left else ():
        for slot, operand in enumerate(instruction.operands):
            pair = FusionPair(operand, instruction, slot)
            left = [pattern for pattern in left if not pattern.fits(pair)]
    return left


def _is_named(instruction: MutableInstruction, pattern: str) -> bool:
    names = (instruction.name, instruction.origin, instruction.opcode)
    return any(fnmatchcase(name, pattern) for name in names)


def _makers(pair: FusionPair) -> Iterable[MutableInstruction]:
    """The producer, and the last operation in it."""
    if pair.producer.opcode != "fusion":
        return (pair.producer,)
    return (pair.producer, pair.producer.fused.root)


def _readers(pair: FusionPair) -> Iterable[MutableInstruction]:
    """What reads the producer: the consumer, or instructions inside it."""
    if pair.consumer.opcode != "fusion":
        return (pair.consumer,)
    return pair.consumer.fused.parameters[pair.slot].users


@dataclass(frozen=True, slots=True)
class Allowed(PairRule):
    """Not one of the compiler's: pairs that a user wants fused, as far as that is legal."""

    id: ClassVar = "user-allow"
    title: ClassVar = "asked for with --allow"
    what: ClassVar = "Allowed where no rule objects without which the result would be wrong."
    source: ClassVar = "--allow"
    is_asked_first: ClassVar = True

    patterns: tuple[PairPattern, ...] = ()

    def check(self, pair: FusionPair, state: object = None) -> Decision | None:
        return self.allow() if any(each.fits(pair) for each in self.patterns) else None


@dataclass(frozen=True, slots=True)
class Forbidden(PairRule):
    """Not one of the compiler's: pairs that a user does not want fused."""

    id: ClassVar = "user-forbid"
    title: ClassVar = "asked for with --forbid"
    what: ClassVar = "Refused."
    source: ClassVar = "--forbid"
    is_asked_first: ClassVar = True
    message: ClassVar = "forbidden by the user"

    patterns: tuple[PairPattern, ...] = ()
    excepted: tuple[PairPattern, ...] = ()

    def check(self, pair: FusionPair, state: object = None) -> Decision | None:
        is_meant = any(each.fits(pair) for each in self.patterns)
        if is_meant and not any(each.fits(pair) for each in self.excepted):
            return self.refuse()
        return None


@dataclass(frozen=True, slots=True)
class Changes:
    """``thresholds`` are rule, name and value; ``disabled`` ids of rules, and names of passes that
    are left out. ``kernels`` are names of operations that are to be one kernel each, and no rule is
    asked of them."""

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
            + [f"allow {each}" for each in self.allowed]
            + [f"forbid {each}" for each in self.forbidden]
            + [f"one kernel of {' and '.join(each)}" for each in self.kernels]
        )

    def __or__(self, other: Changes) -> Changes:
        return Changes(
            self.thresholds + other.thresholds,
            self.disabled + other.disabled,
            self.allowed + other.allowed,
            self.forbidden + other.forbidden,
            self.kernels + other.kernels,
        )

    def apply(self, books: Books) -> Books:
        """The books with these changes. Raises ``UnusableInput`` where a rule has no such
        threshold."""
        changed = []
        for book in books:
            for id, name, value in self.thresholds:
                book = book.with_threshold(id, name, value)
            for id in self.disabled:
                book = book.without(id)
            if book.pass_name in TAKING_WISHES:
                wishes = (Forbidden(self.forbidden), Allowed(self.allowed))
                book = book.with_first(tuple(wish for wish in wishes if wish.patterns))
            changed.append(book)
        return tuple(changed)


NO_CHANGES = Changes()


def read_changes(
    set_: Iterable[str], disable: Iterable[str], allow: Iterable[str], forbid: Iterable[str]
) -> Changes:
    """Options of the command line as changes. Raises ``UnusableInput``."""
    return Changes(
        tuple(_threshold(*text.partition("=")[::2]) for text in set_),
        tuple(map(_known, disable)),
        tuple(_pattern("--allow", text) for text in allow),
        tuple(_pattern("--forbid", text) for text in forbid),
    )


def _known(id: str) -> str:
    from fusionscope.rules.catalogue import find_rule

    passes = {book.pass_name for books in BOOKS.values() for book in books}
    if id == _NEEDED:
        raise UnusableInput(f"--disable {id}: without this pass results are wrong")
    return id if id in passes else find_rule(id).rule.id


def _threshold(place: str, value: str) -> tuple[str, str, int]:
    id, _, name = place.strip().rpartition(".")
    if not (id and _known(id)) or not _NUMBER.fullmatch(value.strip()):
        raise UnusableInput(
            f"--set {shorten(place)}={shorten(value)}: expected RULE.NAME=N, N a whole number of "
            "at most 18 digits"
        )
    versions = [rule for books in BOOKS.values() for b in books if (rule := b.find(id))]
    names = dict.fromkeys(name for rule in versions for name in rule.thresholds)
    if name not in names:
        known = ", ".join(names) or "none at all"
        raise UnusableInput(f"--set {place}: {id} has no threshold {name!r}, it has {known}")
    return id, name, int(value)


def _pattern(option: str, text: str) -> PairPattern:
    producer, arrow, consumer = (part.strip() for part in text.partition("->"))
    if not (producer and arrow and consumer) or "->" in consumer:
        raise UnusableInput(f"{option} {text!r}: expected 'PRODUCER -> CONSUMER'")
    return PairPattern(producer.lstrip("%"), consumer.lstrip("%"))
