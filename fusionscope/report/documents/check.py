"""The JSON output of ``fusionscope check``."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fusionscope.dump.agreement import Agreement
from fusionscope.report.documents.form import At, Form


class Growth(Form):
    figure: str
    before: float
    after: float


class Violation(Form):
    module: str
    what: str
    about: str
    source: str | None
    reason: str | None
    because: str | None
    evidence: str | None
    growth: Growth | None


class AllowedViolation(Violation):
    """A violation that an exception allows."""

    inherited: ClassVar = At("violation")
    until: Annotated[str, At(lambda allowed: allowed.allowance.until.isoformat())]
    why: Annotated[str, At("allowance.why")]


class Expectation(Form):
    expectation: str
    message: Annotated[str, At("expectation.message")]
    line: Annotated[int | None, At("expectation.line")]
    met: Annotated[bool, At("is_met")]
    modules: list[str]
    violations: list[Violation]
    allowed: list[AllowedViolation]
    notes: list[str]


class ModuleRules(Form):
    """The rules that gave reasons for one module."""

    dump: Annotated[str, At("0")]
    module: Annotated[str, At("1")]
    name: Annotated[str, At("2.name")]
    version: Annotated[str, At("2.version")]
    shown_by: Annotated[str | None, At("2.shown_by")]
    checked: Annotated[bool, At("2.are_checked")]
    plans: Annotated[Agreement, At("2.plans")]
    guessed: Annotated[list[str], At("2.guessed")]


class Figures(Form):
    kernels: Annotated[int, At("kernel_count")]
    launches: int
    bytes: Annotated[int, At("bytes_moved")]
    time_us: float | None
    headroom_us: float | None
    peak: Annotated[int | None, At("peak_bytes")]
    spills: Annotated[int | None, At("spill_bytes")]


class Module(Form):
    module: Annotated[str, At("name")]
    program: str
    target: str
    before: Figures | None
    now: Figures | None


class Document(Form, tag_field="schema", tag="fusionscope.check/1"):
    dumps: list[str]
    met: Annotated[bool, At("is_met")]
    against: Annotated[str | None, At("origin")]
    modules: Annotated[list[Module], At("compared")]
    expectations: Annotated[list[Expectation], At("outcomes")]
    rules: list[ModuleRules]
    problems: list[str]
