"""The JSON output of ``fusionscope history``."""

from __future__ import annotations

from typing import Annotated

from fusionscope.compare.instruction_trace import Ending
from fusionscope.facts.result import Operation
from fusionscope.history.changes import ChangeKind
from fusionscope.report.documents.form import At, Form


class FusionStep(Form):
    """A recorded step."""

    producer: str
    consumer: str
    fusion: str
    fused_us: Annotated[float | None, At("estimate.fused_us")]
    unfused_us: Annotated[float | None, At("estimate.unfused_us")]
    benefit_us: Annotated[float | None, At("estimate.benefit_us")]


class FusionChange(Form):
    """A change of fusions."""

    kind: ChangeKind
    text: str
    before: list[Operation]
    after: list[Operation]
    gained: list[Operation]
    lost: list[Operation]
    emitters: list[str] | None
    count: int


class Stages(Form):
    first: str
    last: str
    quiet: int | None


class Pass(Form):
    """A pass that changed fusions."""

    stage: str
    pass_: Annotated[str, At("pass_name")]
    fusions: int
    kinds: dict[str, int]
    changes: list[FusionChange]
    steps: list[FusionStep]


class Event(Form):
    stage: str
    pass_: Annotated[str, At("pass_name")]
    names: list[str]
    text: str
    steps: list[FusionStep]


class InstructionTrace(Form):
    """The trace of an instruction."""

    asked: str
    found_in: str
    origin: Operation
    stack: list[str]
    events: list[Event]
    endings: list[Ending]


class Module(Form):
    name: Annotated[str, At("module")]
    number: int
    backend: str | None
    stages: Annotated[Stages, At()]
    fusions: int
    passes: list[Pass]
    trace: InstructionTrace | None
    notes: list[str]


class Document(Form, tag_field="schema", tag="fusionscope.history/1"):
    path: str
    modules: list[Module]
    folded: list[str]
    problems: list[str]
