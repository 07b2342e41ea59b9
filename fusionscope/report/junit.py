"""The result of a check as JUnit XML: one test case for each expectation."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from fusionscope.report.places import Place, Repository
from fusionscope.words.text import safe

if TYPE_CHECKING:
    from fusionscope.check.checking import Checked, Verdict


def to_junit(checked: Checked, file: str, repository: Repository) -> str:
    """``file`` has the expectations: a test case without a line of the user's own is there. The
    time of a suite is that to compile and explain its dumps.
    """
    missed = str(sum(not outcome.is_met for outcome in checked.outcomes))
    counts = {"tests": str(len(checked.outcomes)), "failures": missed, "errors": "0"}
    counts["time"] = f"{checked.seconds:.3f}"
    suites = ElementTree.Element("testsuites", {"name": "fusionscope check"} | counts)
    name = safe(", ".join(dict.fromkeys(program for program, _ in checked.matrix) or checked.dumps))
    suite = ElementTree.SubElement(suites, "testsuite", {"name": name, "skipped": "0"} | counts)
    for outcome in checked.outcomes:
        expectation = outcome.expectation
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=safe(f"fusionscope.{expectation.key}"),
            name=safe(expectation.title),
            time=f"{outcome.seconds:.3f}",
        )
        if (place := _place(outcome, file, repository)) is not None:
            case.set("file", safe(place.file))
            case.set("line", str(place.line))
        if outcome.is_met:
            continue
        failure = ElementTree.SubElement(
            case,
            "failure",
            type=expectation.key,
            message=safe(str(outcome.violations[0])),
        )
        lines = [safe(str(expectation))]
        for violation in outcome.violations:
            lines.append(safe(f"{violation.module}: {violation}"))
            lines += (
                [safe(f"  at {repository.shown(violation.source)}")] if violation.source else []
            )
        failure.text = "\n".join(lines)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _place(outcome: Verdict, file: str, repository: Repository) -> Place | None:
    """Return the line of the first violation, or else that of the expectation."""
    if outcome.violations:
        return repository.place(outcome.violations[0], file)
    relative = repository.relative(file)
    return None if relative is None else Place(relative, outcome.expectation.line or 1)
