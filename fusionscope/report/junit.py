"""Whether a dump is as expected, as JUnit's XML: one test case for each expectation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from fusionscope.report.text import safe

if TYPE_CHECKING:
    from fusionscope.check.checking import Checked

# What XML 1.0 cannot hold, not even escaped.
_IMPOSSIBLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(found: Checked) -> str:
    missed = str(sum(not each.is_met for each in found.outcomes))
    counts = {"tests": str(len(found.outcomes)), "failures": missed, "errors": "0"}
    suites = ElementTree.Element("testsuites", {"name": "fusionscope check"} | counts)
    name = _clean(", ".join(found.dumps))
    suite = ElementTree.SubElement(suites, "testsuite", {"name": name, "skipped": "0"} | counts)
    for outcome in found.outcomes:
        expectation = outcome.expectation
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_clean(f"fusionscope.{expectation.key}"),
            name=_clean(expectation.title),
            time="0",
        )
        if outcome.is_met:
            continue
        failure = ElementTree.SubElement(
            case,
            "failure",
            type=expectation.key,
            message=_clean(safe(str(outcome.violations[0]))),
        )
        lines = [_clean(str(expectation))]
        for each in outcome.violations:
            lines.append(_clean(f"{each.module}: {safe(str(each))}"))
            lines += [_clean(f"  at {each.source}")] if each.source else []
            lines += [_clean(f"  try: {each.advice}")] if each.advice else []
        failure.text = "\n".join(lines)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _clean(text: str) -> str:
    return _IMPOSSIBLE.sub("?", text)
