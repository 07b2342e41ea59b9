"""The JSON output of ``fusionscope diff``."""

from __future__ import annotations

from typing import Annotated

from fusionscope.compare.cost_changes import CostChanges
from fusionscope.compare.difference import FusionDifference, SideFacts
from fusionscope.compare.first_divergence import FirstDivergence
from fusionscope.compare.memory_difference import MemoryDifference
from fusionscope.compare.relation import Unrelated
from fusionscope.facts.result import Operation
from fusionscope.history.changes import EditKind
from fusionscope.history.outcomes import Outcome
from fusionscope.reasons.estimates import Estimate
from fusionscope.report.documents.form import At, Form


class Pair(Form):
    """A pair on one side."""

    producer: Operation
    consumer: Operation
    computation: str
    outcome: Outcome
    kernel: str | None
    stage: str | None
    reason: str | None
    message: str | None
    evidence: str | None
    bytes_saved: int


class OutcomeChange(Form):
    """A pair that ended differently."""

    before: Pair
    after: Pair
    count: int


class Edit(Form):
    kind: EditKind
    before: Operation | None
    after: Operation | None
    fields: dict[str, list[str]]
    step: str | None
    count: int


class Decision(Form):
    """The decision of one side: on the producer, or on it and one consumer."""

    producer: Annotated[str, At("0.0")]
    consumer: Annotated[str | None, At(lambda side: side[0][1] if len(side[0]) > 1 else None)]
    is_fused: Annotated[bool, At("1.is_fused")]
    consumers: Annotated[list[str], At("1.consumers")]
    message: Annotated[str, At("1.message")]
    estimate: Annotated[Estimate | None, At("1.estimate")]


class DecisionChange(Form):
    """The first recorded decision with a different result."""

    before: Annotated[Decision, At(lambda change: (change.subject_before, change.before))]
    after: Annotated[Decision, At(lambda change: (change.subject_after, change.after))]
    is_near_tie: bool | None
    is_first: bool


class Matched(Form):
    steps: dict[str, int]
    certain: Annotated[float, At(lambda module: round(module.certain, 4))]


class Module(Form):
    """A module that differs."""

    before: SideFacts
    after: SideFacts
    unrelated: list[Unrelated]
    costs: CostChanges | None
    header: dict[str, list[str]]
    flags: dict[str, list[str]]
    swapped: list[str]
    outcomes: list[OutcomeChange]
    fusions: list[FusionDifference]
    lost: list[str]
    gained: list[str]
    changed: int
    renamed: int
    edits: list[Edit]
    incidental: int
    first_divergence: FirstDivergence | None
    decision: DecisionChange | None
    memory: MemoryDifference | None
    matched: Annotated[Matched, At()]
    notes: list[str]


class Unchanged(Form):
    """A module that does not differ."""

    module: str
    flags: dict[str, list[str]]
    swapped: list[str]


class Document(Form, tag_field="schema", tag="fusionscope.diff/1"):
    before: str
    after: str
    is_same: bool
    modules: list[Module]
    same: Annotated[list[str], At("same.module")]
    unchanged: Annotated[list[Unchanged], At("same")]
    only_before: list[str]
    only_after: list[str]
    problems: Annotated[list[str], At(lambda found: (*found.problems, *found.notes))]
