"""The JSON output of ``fusionscope check``."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fusionscope.report.documents.form import At, Form
from fusionscope.report.documents.rules_used import RulesUsed


class Violation(Form):
    module: str
    what: str
    about: str
    source: str | None
    reason: str | None
    because: str | None
    evidence: str | None


class Expectation(Form):
    expectation: str
    message: Annotated[str, At("expectation.message")]
    line: Annotated[int | None, At("expectation.line")]
    met: Annotated[bool, At("is_met")]
    modules: list[str]
    violations: list[Violation]
    notes: list[str]


class ModuleRules(RulesUsed):
    """The rules that gave reasons for one module."""

    inherited: ClassVar = At("2")
    dump: Annotated[str, At("0")]
    module: Annotated[str, At("1")]


class Document(Form, tag_field="schema", tag="fusionscope.check/1"):
    dumps: list[str]
    met: Annotated[bool, At("is_met")]
    expectations: Annotated[list[Expectation], At("outcomes")]
    rules: list[ModuleRules]
    problems: list[str]
