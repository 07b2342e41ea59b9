"""Reads files that users write as typed values. Errors have line numbers."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from fusionscope.errors import UnusableInput, expected_one_of, quoted
from fusionscope.system.files import read_text

Value = TypeVar("Value")
Place = tuple[str | int, ...]  # keys and indices, from the outermost table on

_PATH = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a table of keys and values",
    "str": "a text",
}
_BOUNDS = {
    " of length >= 1": " that is not empty",
    " >= 0": " that is not negative",
    " >= 1": " above 0",
}
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_NAME = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[\w-]+)"""
_NAMES = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_TOML_LINE = re.compile(rf"\s*(?:(\[\[?)\s*({_NAMES})\s*\]|({_NAMES})\s*=)")
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


@dataclass(frozen=True, slots=True)
class UserFile(Generic[Value]):
    """The contents of a file. ``places`` maps its keys and values to lines; ``hint`` says how to
    correct a mistake.
    """

    path: Path
    value: Value
    places: Callable[[], Iterator[tuple[Place, int]]]
    hint: str | None = None

    def line(self, *place: str | int) -> int | None:
        """Return the line of a value (from 1), or of the closest place around it, or None."""
        best, nearest = 0, None
        for there, line in self.places():
            shared = next(
                (n for n, step in enumerate(place) if there[n : n + 1] != (step,)), len(place)
            )
            if shared > best:
                best, nearest = shared, line
        return nearest

    def error(self, problem: str, *place: str | int) -> UnusableInput:
        """Return an error about the value at ``place``."""
        return UnusableInput(problem, file=str(self.path), line=self.line(*place), hint=self.hint)

    @contextmanager
    def at(self, *place: str | int) -> Iterator[None]:
        """Report errors in this block as errors about the value at ``place``."""
        try:
            yield
        except UnusableInput as error:
            raise self.error(error.problem, *place) from None


def read_toml(
    path: Path, kind: type[Value], *, within: tuple[str, ...] = (), hint: str | None = None
) -> UserFile[Value]:
    """Read a TOML file, or the table ``within`` it, as a ``kind``: a ``msgspec.Struct``.

    Raises ``UnusableInput`` with ``hint`` and, if it is known, the line.
    """
    text = _text(path, hint)
    try:
        content: Any = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number may be too long, a list too deep
        problem, column, line = str(error), None, None
        if place := _TOML_PLACE.search(problem):
            problem = problem[: place.start()]
            line, column = map(int, place.groups()) if place[1] else (text.count("\n") + 1, None)
        raise UnusableInput(
            f"not TOML: {problem}", file=str(path), line=line, column=column, hint=hint
        ) from None
    for name in within:
        content = content.get(name, {}) if isinstance(content, dict) else content

    def places() -> Iterator[tuple[Place, int]]:
        for place, line in _toml_places(text):
            if place[: len(within)] == within:
                yield place[len(within) :], line

    return _as_kind(path, content, kind, places, hint)


def read_json(path: Path, kind: type[Value], *, hint: str | None = None) -> UserFile[Value]:
    """Read a JSON file in the same way."""
    text = _text(path, hint)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise UnusableInput(
            f"not JSON: {error.msg}",
            file=str(path),
            line=error.lineno,
            column=error.colno,
            hint=hint,
        ) from None
    except (ValueError, RecursionError) as error:
        raise UnusableInput(f"not JSON: {error}", file=str(path), hint=hint) from None
    return _as_kind(path, content, kind, lambda: _json_places(text), hint)


def _text(path: Path, hint: str | None) -> str:
    try:
        return read_text(path)
    except UnusableInput as error:
        raise UnusableInput(error.problem, file=error.file, hint=error.hint or hint) from None


def _as_kind(
    path: Path,
    content: Any,
    kind: type[Value],
    places: Callable[[], Iterator[tuple[Place, int]]],
    hint: str | None,
) -> UserFile[Value]:
    try:
        return UserFile(path, msgspec.convert(content, kind), places, hint)
    except msgspec.ValidationError as error:
        problem, place = _in_words(str(error), content, kind)
        raise UserFile(path, None, places, hint).error(problem, *place) from None
    except (OverflowError, RecursionError) as error:
        raise UnusableInput(f"not usable: {error}", file=str(path), hint=hint) from None


def _in_words(message: str, content: Any, kind: type) -> tuple[str, Place]:
    """Return the library's message on a value in our own words, and the value's place."""
    what, _, path = message.partition(" - at `$")
    place: Place = tuple(
        int(number) if number else name
        for name, number in _PATH.findall(path.partition("[...]")[0].removesuffix("`"))
    )
    if key := re.search(r"unknown field `(.*)`", what):
        fields = [field.encode_name for field in _type_at(kind, place).fields]
        inside = f" in {place[-1]}" if place and isinstance(place[-1], str) else ""
        return f"unknown key {quoted(key[1])}{inside}, {expected_one_of(key[1], fields)}", (
            *place,
            key[1],
        )
    if key := re.search(r"missing required field `(.*)`", what):
        return f"{quoted(key[1])} is missing{f' in {_named(place)}' if place else ''}", place
    expected, _, got = what.removeprefix("Expected ").partition(", got ")
    if what.startswith("Invalid enum value"):
        expected = " or ".join(map(quoted, _type_at(kind, place).values))
    for bound, words in _BOUNDS.items():
        expected = expected.replace(bound, words)
    if "[...]" in path:
        return f"{_named(place)} holds {_translated(f'{got}, expected {expected}')}", place
    value = content
    for step in place:
        value = value[step]
    found_value = f"{_named(place)} = {quoted(value)}" if place else _translated(f"found {got}")
    return f"{found_value}, expected {_translated(expected)}", place


def _translated(words: str) -> str:
    """Replace the library's type names."""
    return re.sub(
        r"`([^`]*)`",
        lambda kinds: " or ".join(_WORDS[kind] for kind in kinds[1].split(" | ") if kind in _WORDS),
        words,
    )


def _named(place: Place) -> str:
    """Return the last key of a place, with its indices: ``arguments[0]``."""
    keys = [number for number, step in enumerate(place) if isinstance(step, str)]
    first, *steps = place[keys[-1] :] if keys else ("",)
    return f"{first}{''.join(f'[{step}]' for step in steps)}"


def _type_at(kind: type, place: Place) -> Any:
    """Return the library's description of the type expected at ``place``."""
    type_info: Any = msgspec.inspect.type_info(kind)
    for step in place:
        if isinstance(step, int):
            type_info = type_info.item_type
        else:
            type_info = next(field.type for field in type_info.fields if field.encode_name == step)
        if isinstance(type_info, msgspec.inspect.UnionType):
            type_info = type_info.types[0]
    return type_info


def _toml_places(text: str) -> Iterator[tuple[Place, int]]:
    """Yield tables and keys, each with its line. A line in a multi-line string that looks like a
    key counts as one.
    """
    table: Place = ()
    last: dict[Place, int] = {}  # the index of the last table of each list
    for number, line in enumerate(text.split("\n"), 1):
        line_match = _TOML_LINE.match(line)
        if line_match is None:
            continue
        names = [
            _unquoted(match[0]) for match in re.finditer(_NAME, line_match[2] or line_match[3])
        ]
        if line_match[1] is None:
            yield (*table, *names), number
            continue
        table = ()
        for name in names[:-1]:
            table = (*table, name)
            if table in last:
                table = (*table, last[table])
        table = (*table, names[-1])
        if line_match[1] == "[[":
            last[table] = last.get(table, -1) + 1
            table = (*table, last[table])
        yield table, number


def _unquoted(name: str) -> str:
    with suppress(tomllib.TOMLDecodeError):  # only looks like a name, in a longer text
        return str(tomllib.loads(f"name = {name}")["name"]) if name[0] in "\"'" else name
    return name


def _json_places(text: str) -> Iterator[tuple[Place, int]]:
    """Yield values in objects and lists with their lines: of the key, or of the beginning."""
    here: list[str | int] = []
    last, line, visited = "", 1, 0
    for token in _JSON_TOKEN.finditer(text):
        line += text.count("\n", visited, token.start())
        visited = token.start()
        if here and last in ("{", "[", ","):
            inner = here[-1]
            if isinstance(inner, int):
                here[-1] = inner + (last == ",")
            elif token[0][0] == '"':
                here[-1] = json.loads(token[0])
            yield tuple(here), line
        if token[0] in "{[":
            here.append("" if token[0] == "{" else 0)
        elif token[0] in "}]":
            here.pop()
        last = token[0]
