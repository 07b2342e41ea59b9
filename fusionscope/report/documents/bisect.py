"""The JSON output of ``fusionscope bisect``."""

from __future__ import annotations

from typing import Annotated

from fusionscope.bisect.result import By, Cost, FusedPair, Operation
from fusionscope.report.documents.form import At, Form
from fusionscope.report.documents.rerun import Result


class Reproducer(Form):
    directory: Annotated[str, At(lambda found: str(found.directory))]
    output: list[str]
    differs: bool
    problem: str


class Culprit(Form):
    """What must be in one kernel to make the difference."""

    kernel: str
    of: int
    pairs: list[FusedPair]
    operations: list[Operation]
    reproducer: Reproducer | None


class Document(Form, tag_field="schema", tag="fusionscope.bisect/1"):
    module: str
    by: By
    reference: str | None
    kernels: int
    problem: str
    tried: int
    failed: int
    shows_in: int
    runs: int
    crash: str
    results: list[Result]
    alone: list[Result]
    amplifies: bool
    cost: Cost | None
    found: list[Culprit]
