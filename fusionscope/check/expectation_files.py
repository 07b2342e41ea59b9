"""Reads what is expected: a TOML file, or the table ``tool.fusionscope`` of a pyproject.

    [[expect]]
    fused = "exponential -> reduce"
    where = { module = "jit_step", device = "h100" }
    message = "the softmax is one kernel"

Each ``[[expect]]`` has one key of ``EXPECTATIONS``, and may have ``where`` and ``message``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fusionscope.check.expectations import EXPECTATIONS, Expectation, NotRefused, Where
from fusionscope.errors import UnusableInput, quoted
from fusionscope.rules.messages import RULE_IDS, UNKNOWN
from fusionscope.system.files import read_text

_PYPROJECT = "pyproject.toml"
_TABLE = re.compile(r"^\s*\[\[\s*(?:tool\s*\.\s*fusionscope\s*\.\s*)?expect\s*\]\]")

_PLACES = tuple(field.name for field in fields(Where))


def read_expectations(path: Path) -> tuple[Expectation, ...]:
    """Raises ``UnusableInput`` with the line where a key or value is none that can be expected."""
    try:
        text = read_text(path)
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise UnusableInput(
            f"not TOML: {error}", file=str(path), line=int(line[1]) if line else None
        ) from None
    except (ValueError, RecursionError) as error:
        raise UnusableInput(f"not TOML: {error}", file=str(path)) from None
    if path.name == _PYPROJECT:
        content = content.get("tool", {}).get("fusionscope", {})
    return tuple(_Reader(path, text).read(content))


class _Reader:
    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines()
        self._starts = [n for n, line in enumerate(self._lines, 1) if _TABLE.match(line)]

    def read(self, content: Any) -> Iterator[Expectation]:
        if not isinstance(content, dict) or "expect" not in content:
            raise self._error("expects nothing, expected tables [[expect]]")
        for key in content:
            if key != "expect":
                raise self._error(f"unknown key {quoted(key)}, expected tables [[expect]]", key=key)
        tables = content["expect"]
        if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
            raise self._error("'expect' is no list of tables, expected [[expect]]", key="expect")
        for index, table in enumerate(tables):
            yield self._read_one(index, table)

    def _read_one(self, index: int, table: dict[str, Any]) -> Expectation:
        known = [*EXPECTATIONS, "where", "message"]
        for key in table:
            if key not in known:
                raise self._error(f"unknown key {quoted(key)}, {_expected(key, known)}", index, key)
        kinds = [key for key in table if key in EXPECTATIONS]
        if len(kinds) != 1:
            found = f"has {' and '.join(kinds)}" if kinds else "says nothing"
            raise self._error(
                f"an [[expect]] {found}, expected one of {', '.join(EXPECTATIONS)}", index
            )
        (kind,) = kinds
        value = table[kind]
        if wanted := EXPECTATIONS[kind].expected(value):
            raise self._error(f"{kind} = {quoted(value)}, expected {wanted}", index, kind)
        for id in value if kind == NotRefused.key else ():
            if id not in RULE_IDS and id != UNKNOWN:
                close = _expected(id, sorted(RULE_IDS))
                raise self._error(f"no reason is called {quoted(id)}, {close}", index, kind)
        message = table.get("message", "")
        if not isinstance(message, str):
            raise self._error(f"message = {quoted(message)}, expected a text", index, "message")
        where = self._where(index, table.get("where", {}))
        return EXPECTATIONS[kind](value, where, message, self._line(index, kind))

    def _where(self, index: int, table: Any) -> Where:
        if not isinstance(table, dict):
            raise self._error(
                f"where = {quoted(table)}, expected a table such as {{ module = 'jit_step' }}",
                index,
                "where",
            )
        for key, value in table.items():
            if key not in _PLACES:
                known = _expected(key, list(_PLACES))
                raise self._error(f"unknown key {quoted(key)} in where, {known}", index, "where")
            if not isinstance(value, str) or not value:
                raise self._error(f"{key} = {quoted(value)}, expected a text", index, "where")
        return Where(**table)

    def _line(self, index: int | None, key: str | None) -> int | None:
        """Of a key in a table, or of the table; tables that are written otherwise have none."""
        first = 1
        if index is not None:
            if index >= len(self._starts):
                return None
            first = self._starts[index]
        elif key is None:
            return None
        for number, line in enumerate(self._lines[first - 1 :], first):
            if index is not None and number > first and _TABLE.match(line):
                break
            if key is not None and re.match(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}\b", line):
                return number
        return first if index is not None else None

    def _error(
        self, problem: str, index: int | None = None, key: str | None = None
    ) -> UnusableInput:
        return UnusableInput(problem, file=str(self._path), line=self._line(index, key))


def _expected(found: str, known: list[str]) -> str:
    close = get_close_matches(found, known, 1, 0.5)
    if close:
        return f"did you mean {quoted(close[0])}?"
    return f"expected one of {', '.join(known[:12])}"
