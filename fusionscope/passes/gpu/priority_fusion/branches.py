"""Changed rules that follow a run of priority fusion up to the first step that they change.

Most changes lead to a few other steps near the end of a computation: all steps before them are
those of the run with the unchanged rules, which is done once. Computations do not depend on each
other, so a change is followed in those that it concerns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from fusionscope.gpu.cost.duration import Duration
from fusionscope.gpu.cost.model import Estimate
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.gpu.priority_fusion.rules import (
    AllUsers,
    GpuPairRule,
    NegativeBenefit,
    RulePhase,
)
from fusionscope.passes.overrides import Allowed, maker_names
from fusionscope.passes.rule import Decision, Rule, RuleBook

if TYPE_CHECKING:
    from fusionscope.passes.gpu.priority_fusion.computation import Step

_WILDCARD = re.compile(r"[*?[]")
_LATE = frozenset({RulePhase.EMITTER, RulePhase.CONSTANT})


@dataclass(slots=True, eq=False)
class Branch:
    """The rules of ``book``, which only allow more than those that run.

    ``split`` is called before the first step in a computation that they change, with its name. It
    makes a copy of this process and returns true there, where these rules apply to the end of the
    computation. Then ``finish`` ends the copy, with the steps. If all earlier steps of the pass are
    the same, and no computation comes later, the name is empty: that copy goes on.
    """

    book: RuleBook[Rule]
    split: Callable[[str], bool]
    finish: Callable[[Sequence[Step]], NoReturn]
    is_open: bool = True  # all steps so far are the same

    def part(self, computation: str = "") -> bool:
        """Return whether to go on with these rules, to the end of a ``computation`` or of all."""
        self.is_open = False
        return self.split(computation)


def can_follow(book: RuleBook[Rule], changed: RuleBook[Rule]) -> bool:
    """Return whether each refusal of ``book`` shows which of the ``changed`` rules made it, and
    these refuse nothing else. The rules of Triton hide what they refuse, and without ``AllUsers``
    a producer goes into some of its consumers only, so both are replayed alone.
    """
    return all(map(_is_visible, _difference(book, changed)))


def _difference(book: RuleBook[Rule], changed: RuleBook[Rule]) -> list[Rule]:
    return [
        *(rule for rule in book if rule not in changed.rules),
        *(rule for rule in changed if rule not in book.rules),
    ]


def _is_visible(rule: Rule) -> bool:
    if isinstance(rule, GpuPairRule):
        return _LATE.issuperset(rule.stages)
    return isinstance(rule, Allowed | NegativeBenefit)


class Rules:
    """What the pass asks of a book besides its rules about pairs."""

    def __init__(self, book: RuleBook[Rule]) -> None:
        self.asks_all_users = book.find(AllUsers.id) is not None
        negative = book.find(NegativeBenefit.id)
        self._negative = negative if isinstance(negative, NegativeBenefit) else None

    def tolerates(self, benefit: Duration) -> bool:
        """Return whether a producer with this benefit is fused."""
        return self._negative is None or self._negative.tolerates(benefit)


class Changed:
    """The rules that a ``branch`` of a run with ``book`` changes, and what they said: decisions and
    the shares of consumers, by producer and consumer.
    """

    def __init__(self, branch: Branch, book: RuleBook[Rule]) -> None:
        difference = _difference(book, branch.book)
        self.rules = Rules(branch.book)
        self.decisions: dict[MutableInstruction, dict[MutableInstruction, Decision]] = {}
        self.shares: dict[MutableInstruction, dict[MutableInstruction, Estimate]] = {}
        self._ids = frozenset(rule.id for rule in difference)
        self._makers = frozenset(
            pattern.producer
            for rule in branch.book
            if isinstance(rule, Allowed)
            for pattern in rule.patterns
        )
        self._has_wildcards = any(map(_WILDCARD.search, self._makers))
        self.changes_constants = any(
            isinstance(rule, GpuPairRule) and RulePhase.CONSTANT in rule.stages
            for rule in difference
        )

    def may_force(self, producer: MutableInstruction) -> bool:
        """Return whether a user may wish to fuse ``producer`` into something."""
        if not self._makers or self._has_wildcards:
            return self._has_wildcards
        return not self._makers.isdisjoint(maker_names(producer))

    def lifts(self, decision: Decision) -> bool:
        """Return whether the rules may decide otherwise."""
        return not decision.allow and decision.rule in self._ids

    def lifts_any(self, decisions: Iterable[Decision]) -> bool:
        """Return whether the rules may take a producer that was refused by these ``decisions``."""
        return any(map(self.lifts, decisions))

    def forget(self, instruction: MutableInstruction) -> None:
        """Discard what was said of ``instruction``, which changed."""
        for answers in (self.decisions, self.shares):
            answers.pop(instruction, None)
            for operand in instruction.operands:
                if operand in answers:
                    answers[operand].pop(instruction, None)
