"""The result of a check as JUnit XML: one test case for each expectation."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from fusionscope.report.text import safe

if TYPE_CHECKING:
    from fusionscope.check.checking import Checked


def to_junit(found: Checked) -> str:
    missed = str(sum(not each.is_met for each in found.outcomes))
    counts = {"tests": str(len(found.outcomes)), "failures": missed, "errors": "0"}
    suites = ElementTree.Element("testsuites", {"name": "fusionscope check"} | counts)
    name = safe(", ".join(found.dumps))
    suite = ElementTree.SubElement(suites, "testsuite", {"name": name, "skipped": "0"} | counts)
    for outcome in found.outcomes:
        expectation = outcome.expectation
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=safe(f"fusionscope.{expectation.key}"),
            name=safe(expectation.title),
            time="0",
        )
        if outcome.is_met:
            continue
        failure = ElementTree.SubElement(
            case,
            "failure",
            type=expectation.key,
            message=safe(str(outcome.violations[0])),
        )
        lines = [safe(str(expectation))]
        for each in outcome.violations:
            lines.append(safe(f"{each.module}: {each}"))
            lines += [safe(f"  at {each.source}")] if each.source else []
        failure.text = "\n".join(lines)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'
