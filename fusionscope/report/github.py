"""Whether a dump is as expected, as annotations of GitHub's workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.report.check import summary_of
from fusionscope.report.text import safe

if TYPE_CHECKING:
    from fusionscope.check.checking import Checked
    from fusionscope.check.expectations import Violation


def to_github(found: Checked, file: str) -> str:
    """One workflow command for each violation; ``file`` is that of the expectations."""
    lines = [_annotation(each, file) for each in found.violations]
    level = "notice" if found.is_met else "error"
    return "\n".join([*lines, f"::{level} title=fusionscope::{_data(summary_of(found))}"]) + "\n"


def _annotation(violation: Violation, file: str) -> str:
    path, line = file, str(violation.expectation.line or 1)
    if violation.source is not None:
        path, _, line = violation.source.rpartition(":")
    module = f"{violation.module}: " if violation.module else ""
    properties = {"file": path, "line": line, "title": violation.expectation.title}
    written = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::error {written}::{_data(f'{module}{safe(str(violation))}')}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
