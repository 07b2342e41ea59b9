"""The result of a check as annotations of GitHub's workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusionscope.report.check import summary_of
from fusionscope.report.places import Place, Repository
from fusionscope.words.text import safe

if TYPE_CHECKING:
    from fusionscope.check.checking import Checked
    from fusionscope.check.expectation import Violation


def to_github(checked: Checked, file: str, repository: Repository) -> str:
    """Return one workflow command for each violation; ``file`` is that of the expectations."""
    lines = [
        _annotation(violation, repository.place(violation, file))
        for violation in checked.violations
    ]
    level = "notice" if checked.is_met else "error"
    return "\n".join([*lines, f"::{level} title=fusionscope::{_data(summary_of(checked))}"]) + "\n"


def _annotation(violation: Violation, place: Place | None) -> str:
    module = f"{violation.module}: " if violation.module else ""
    properties = {} if place is None else {"file": place.file, "line": str(place.line)}
    properties["title"] = violation.expectation.title
    properties_text = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::error {properties_text}::{_data(f'{module}{violation}')}"


def _data(text: str) -> str:
    return safe(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
