"""The JSON output of every command: one module per command, whose outermost type is ``Document``.

These types are the published form of results: ``docs/schema/`` is generated from them, and
docs/json.md describes the fields.
"""

from __future__ import annotations

import importlib
from typing import Any

from fusionscope.report.documents.form import Form, form_of, to_data

COMMANDS = (
    "explain",
    "verify",
    "rules",
    "recipes",
    "history",
    "diff",
    "check",
    "capture",
    "rerun",
    "self_test",
    "tune",
    "bisect",
    "experiments",
    "drift",
    "study",
    "doctor",
    "survey",
    "survey_report",
    "survey_query",
    "parse",
)


def document_of(command: str) -> type[Form]:
    """Return the type of the JSON output of this command."""
    document: type[Form] = importlib.import_module(f"{__name__}.{command}").Document
    return document


def to_json(command: str, result: object) -> dict[str, Any]:
    """Return the JSON output of ``fusionscope COMMAND --format json`` for its result."""
    return to_data(form_of(document_of(command), result))
