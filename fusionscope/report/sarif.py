"""The result of a check as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fusionscope import __version__
from fusionscope.report.places import Place, Repository
from fusionscope.words.text import safe

if TYPE_CHECKING:
    from fusionscope.check.checking import Checked
    from fusionscope.check.expectation import Expectation, Violation

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "%SRCROOT%"  # of the repository
_NUMBERED = re.compile(r"\.\d+|(?<![\w.])[\d,.]+(?![\w.])")  # parts that change with a program


def to_sarif(checked: Checked, file: str, repository: Repository) -> dict[str, Any]:
    """``file`` has the expectations: violations without a line of the user's own appear there."""
    kinds = {outcome.expectation.key: type(outcome.expectation) for outcome in checked.outcomes}
    ids = list(kinds)
    visited: Counter[str] = Counter()
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "fusionscope",
                        "version": __version__,
                        "rules": [
                            {
                                "id": id,
                                "shortDescription": {"text": _description(kinds[id])},
                                "defaultConfiguration": {"level": "error"},
                            }
                            for id in ids
                        ],
                    }
                },
                "originalUriBaseIds": {
                    _ROOT: {"description": {"text": "The root of the repository."}}
                },
                "columnKind": "unicodeCodePoints",
                "results": [
                    {
                        "ruleId": violation.expectation.key,
                        "ruleIndex": ids.index(violation.expectation.key),
                        "level": "error",
                        "message": {"text": _message(violation)},
                        "locations": _locations(repository.place(violation, file)),
                        "partialFingerprints": _fingerprints(violation, visited),
                    }
                    for violation in checked.violations
                ],
            }
        ],
    }


def _description(kind: type[Expectation]) -> str:
    words = (kind.__doc__ or kind.key).split("\n\n")[0]
    return " ".join(words.replace("``", "'").split())


def _message(violation: Violation) -> str:
    module = f"{violation.module}: " if violation.module else ""
    return safe(f"{violation.expectation.title}: {module}{violation}")


def _fingerprints(violation: Violation, visited: Counter[str]) -> dict[str, str]:
    """Return what tells a violation from others, and stays when lines move and numbers change. It
    has the name under which GitHub looks for it.
    """
    what = _NUMBERED.sub("#", violation.what)
    about = _NUMBERED.sub("#", violation.about)
    words = (violation.expectation.identity, violation.module, what, about, violation.reason or "")
    identity = hashlib.sha256("\0".join(words).encode(errors="replace")).hexdigest()[:16]
    visited[identity] += 1
    return {"primaryLocationLineHash": f"{identity}:{visited[identity]}"}


def _locations(place: Place | None) -> list[dict[str, Any]]:
    if place is None:
        return []
    return [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": quote(place.file), "uriBaseId": _ROOT},
                "region": {"startLine": place.line},
            }
        }
    ]
