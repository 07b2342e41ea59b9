"""How often the rules for TPUs were right about programs that were compiled after the rules.

``accuracy.json`` is the output of ``tools/conformance/tpu_rules.py``: for each rule and device, how
many pairs the compiler refused of those that the rule says it refuses. Pairs that look alike in one
program count once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_LEAST = 0.95  # a rule that is right less often gives no reason


@dataclass(frozen=True, slots=True)
class Accuracy:
    """``refused`` of ``pairs`` were not fused."""

    refused: int
    pairs: int

    @property
    def is_enough(self) -> bool:
        """Return whether the rule may give a reason."""
        return self.refused >= _LEAST * self.pairs

    def __str__(self) -> str:
        return f"{self.refused:,} of {self.pairs:,}"


@cache
def _counted() -> dict[str, Any]:
    counts: dict[str, Any] = json.loads(
        Path(__file__).with_name("accuracy.json").read_text(encoding="utf-8")
    )
    return counts


def libtpu() -> str:
    """Return the version of the compiler on whose programs the rules were counted."""
    return str(_counted()["libtpu"])


def build() -> str:
    """Return the number that this compiler adds to the name of each module."""
    return str(_counted()["build"])


def accuracy_of(rule: str, device: str | None = None) -> Accuracy | None:
    """Return the count of ``rule`` on ``device``, or else on all devices, None without pairs."""
    counts: dict[str, list[int]] = _counted()["rules"].get(rule, {})
    rows = [counts[device]] if device in counts else list(counts.values())
    refused, pairs = (sum(row[place] for row in rows) for place in (0, 1))
    return Accuracy(refused, pairs) if pairs else None
