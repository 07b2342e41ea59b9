"""Rules about single operations: which ones a library takes, which ones are wrapped."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.rule import NO_CASE, Decision, Rule, first_decision


class OperationRule(Rule):
    __slots__ = ()

    @abstractmethod
    def check(self, operation: MutableInstruction) -> Decision | None:
        """What the rule decides, or None where it leaves the operation to the next one."""


def decide(rules: Iterable[OperationRule], operation: MutableInstruction) -> Decision:
    """What the first of them decides that does."""
    return first_decision(rule.check(operation) for rule in rules) or NO_CASE
