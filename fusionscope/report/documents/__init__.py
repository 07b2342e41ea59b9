"""The JSON output of every command: the type of its result, or a form of it.

``docs/schema/`` and docs/json.md are generated from these types.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from msgspec import Struct

from fusionscope.facts.facts import to_data
from fusionscope.report.documents.form import Form, form_of

_FORMS = "fusionscope.report.documents"
# The module and the outermost type.
DOCUMENTS = {
    "explain": (f"{_FORMS}.explain", "Document"),
    "verify": ("fusionscope.verify.verification", "Verification"),
    "rules": (f"{_FORMS}.rules", "Document"),
    "recipes": (f"{_FORMS}.recipes", "Document"),
    "history": ("fusionscope.compare.module_history", "History"),
    "diff": (f"{_FORMS}.diff", "Document"),
    "check": (f"{_FORMS}.check", "Document"),
    "capture": ("fusionscope.capture.capture", "Captures"),
    "upgrade": ("fusionscope.upgrade.upgrade", "Upgrade"),
    "rerun": (f"{_FORMS}.rerun", "Document"),
    "self_test": ("fusionscope.study.self_test", "SelfTest"),
    "tune": ("fusionscope.tune.results", "Tuning"),
    "bisect": ("fusionscope.bisect.result", "Bisection"),
    "experiments": ("fusionscope.experiments.experiments", "Experiments"),
    "drift": ("fusionscope.experiments.drift", "Drift"),
    "study": (f"{_FORMS}.study", "Document"),
    "doctor": ("fusionscope.doctor.doctor", "Diagnosis"),
    "survey": ("fusionscope.survey.survey", "Surveyed"),
    "survey_report": ("fusionscope.survey.fleet", "Fleet"),
    "survey_query": (f"{_FORMS}.survey_query", "Document"),
    "parse": (f"{_FORMS}.parse", "Document"),
}


def document_of(command: str) -> type[Struct]:
    """Return the type of the JSON output of this command."""
    module, name = DOCUMENTS[command]
    document: type[Struct] = getattr(import_module(module), name)
    return document


def to_json(command: str, result: object) -> dict[str, Any]:
    """Return the JSON output of ``fusionscope COMMAND --format json`` for its result."""
    document = document_of(command)
    data: dict[str, Any] = to_data(
        form_of(document, result) if issubclass(document, Form) else result
    )
    return data
