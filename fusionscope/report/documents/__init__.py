"""What every command prints as JSON: one module for each command, its outermost type ``Document``.

These types are the published form of results: ``docs/schema/`` is generated from them, and
docs/json.md says what the fields mean.
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
    "tune",
    "study",
    "parse",
)


def document_of(command: str) -> type[Form]:
    """The type of what this command prints."""
    document: type[Form] = importlib.import_module(f"{__name__}.{command}").Document
    return document


def to_json(command: str, result: object) -> dict[str, Any]:
    """What ``fusionscope COMMAND --format json`` prints of its result."""
    return to_data(form_of(document_of(command), result))
