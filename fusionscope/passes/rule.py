"""Rules, their decisions, and books of rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, TypeVar

from fusionscope.errors import UnusableInput, quoted

Number = int | str


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision to allow or forbid, the id of the rule that decided, the compiler's message
    (empty if it has none), and the numbers that the rule compared, by name.
    """

    allow: bool
    rule: str
    message: str = ""
    numbers: tuple[tuple[str, Number], ...] = ()


# For operations that no rule of a book decides.
NO_OBJECTION = Decision(True, "none")
NO_CASE = Decision(False, "none")


def first_decision(decisions: Iterable[Decision | None]) -> Decision | None:
    """Return the first decision, or None. Like the compiler, ask no further. ``decisions`` are
    those of rules in its order, each evaluated when its turn comes.
    """
    return next(filter(None, decisions), None)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the compiler. Its thresholds are its fields; its page is ``rules/pages/ID.md``.

    A rule with thresholds is a frozen dataclass with slots. One without is a plain class with empty
    ``__slots__``: it inherits all that makes it a value, and is quicker to import.

    ``message`` is the compiler's, empty if it has none. ``is_legality`` marks a rule without which
    the result would be wrong or could not be compiled: it can be disabled, but ``--allow`` does not
    overrule it. ``only_allows`` marks one that refuses nothing.
    """

    id: ClassVar[str]
    message: ClassVar[str] = ""
    is_legality: ClassVar[bool] = False
    only_allows: ClassVar[bool] = False

    def allow(self, **numbers: Number) -> Decision:
        return Decision(True, self.id, "", tuple(numbers.items()))

    def refuse(self, message: str | None = None, **numbers: Number) -> Decision:
        """Return a refusal. ``message`` replaces the rule's own."""
        text = self.message if message is None else message
        return Decision(False, self.id, text, tuple(numbers.items()))

    @property
    def thresholds(self) -> dict[str, int]:
        """The numeric thresholds by name, not other differences between versions."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, int)}


AnyRule = TypeVar("AnyRule", bound=Rule)


@dataclass(frozen=True, slots=True)
class RuleBook(Generic[AnyRule]):
    """The rules of one pass in the compiler's order.

    ``pass_name`` is the name of the pass in dump files.
    """

    name: str
    pass_name: str
    backend: str
    rules: tuple[AnyRule, ...]

    def find(self, id: str) -> AnyRule | None:
        return next((rule for rule in self.rules if rule.id == id), None)

    def __iter__(self) -> Iterator[AnyRule]:
        return iter(self.rules)

    def with_threshold(self, id: str, name: str, value: int) -> RuleBook[AnyRule]:
        """Return the book with another threshold. Raises ``UnusableInput`` if there is none."""
        rule = self.find(id)
        if rule is None:
            return self
        if name not in rule.thresholds:
            names = ", ".join(rule.thresholds) or "none at all"
            raise UnusableInput(
                f"{id} has no threshold {quoted(name)} in {self.name}, it has {names} there"
            )
        changes: dict[str, Any] = {name: value}
        return self.with_rule(replace(rule, **changes))

    def with_rule(self, rule: AnyRule) -> RuleBook[AnyRule]:
        """Return the book with ``rule`` in place of the one with its id."""
        rules = tuple(rule if old.id == rule.id else old for old in self.rules)
        return replace(self, rules=rules)

    def with_before(self, id: str, rule: AnyRule) -> RuleBook[AnyRule]:
        """Return the book with ``rule`` directly before the one with this ``id``."""
        place = [current.id for current in self.rules].index(id)
        return replace(self, rules=(*self.rules[:place], rule, *self.rules[place:]))

    def with_first(self, rules: tuple[AnyRule, ...]) -> RuleBook[AnyRule]:
        """Return the book with ``rules`` before all others."""
        return replace(self, rules=rules + self.rules)

    def renamed(self, name: str) -> RuleBook[AnyRule]:
        return replace(self, name=name)

    def without(self, id: str) -> RuleBook[AnyRule]:
        return replace(self, rules=tuple(rule for rule in self.rules if rule.id != id))
