"""Rules about single operations: those that a library takes, and those that are wrapped."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.rule import NO_CASE, Decision, Rule, first_decision


class OperationRule(Rule):
    __slots__ = ()

    @abstractmethod
    def check(self, operation: MutableInstruction) -> Decision | None:
        """Return the decision, or None to leave the operation to the next rule."""


def decide(rules: Iterable[OperationRule], operation: MutableInstruction) -> Decision:
    """Return the first decision of ``rules``."""
    return first_decision(rule.check(operation) for rule in rules) or NO_CASE
