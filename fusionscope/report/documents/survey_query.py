"""The JSON output of ``fusionscope survey query``."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Annotated, Any

from fusionscope.report.documents.form import At, Form
from fusionscope.survey.questions import Answer


def _columns(answer: Answer) -> list[tuple[str, str]]:
    return list(zip(answer.columns, answer.types, strict=True))


def _rows(answer: Answer) -> list[list[Any]]:
    return [[_value(cell) for cell in row] for row in answer.rows]


def _value(value: Any) -> Any:
    """Return what JSON can hold: dates and whatever else it has no type for become texts."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_value(element) for element in value]
    if isinstance(value, dict):
        return {str(name): _value(element) for name, element in value.items()}
    return str(value)


class Column(Form):
    """A column of the answer.

    name: name
    type_: DuckDB's name of the type
    """

    name: Annotated[str, At("0")]
    type_: Annotated[str, At("1")]


class Document(Form, tag_field="schema", tag="fusionscope.survey-query/1"):
    """``fusionscope survey query DIR SQL --format json``.

    columns: the columns of the answer
    rows: a list of values for each row, in the order of the columns; dates, and what else JSON has
        no type for, are strings
    """

    columns: Annotated[list[Column], At(_columns)]
    rows: Annotated[list[list[Any]], At(_rows)]
