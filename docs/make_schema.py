"""Writes docs/schema/: the JSON Schema of what each command prints with ``--format json``.

The structure comes from the types of results, and from forms of them in
fusionscope/report/documents/; the descriptions of fields from their docstrings and the tables of
docs/json.md.

python docs/make_schema.py
"""

import dataclasses
import functools
import inspect
import json
import operator
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from fusionscope.facts.facts import names_in_json
from fusionscope.report.documents import DOCUMENTS, document_of

DOCS = Path(__file__).parent
SCHEMA = DOCS / "schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MEANING = re.compile(r"^(\w+): (.*(?:\n .*)*)", re.MULTILINE)
_ROW = re.compile(r"^\| `([^`]+)` \| [^|]+ \| (.+) \|$", re.MULTILINE)
# One row may stand for both sides of a comparison, or for all the instructions of a change.
_SIDES = {
    "<side>": ("before", "after"),
    "<role>": ("before", "after", "gained", "lost"),
}


def tables() -> dict[str, dict[str, str]]:
    """What docs/json.md says of each field, by command and path."""
    sections = re.split(r"^## (\w+)$", (DOCS / "json.md").read_text(encoding="utf-8"), flags=re.M)
    return {
        command: {path: text for row, text in _ROW.findall(section) for path in _paths(row)}
        for command, section in zip(sections[1::2], sections[2::2], strict=True)
    }


def _paths(row: str) -> Iterator[str]:
    for side, names in _SIDES.items():
        if side in row:
            for name in names:
                yield from _paths(row.replace(side, name))
            return
    yield re.sub(r"<\w+>", "*", row)


def schema_of(command: str) -> dict[str, Any]:
    """The schema of one command, with what docs/json.md says of each field."""
    types = Types()
    schema = msgspec.json.schema(types.published(document_of(command)))
    for type_ in schema["$defs"].values():
        _describe(type_, types.classes.get(type_["title"]))
    described = tables()[command]
    for path, field in _fields(schema, {"$ref": schema["$ref"]}, ""):
        ways = (path, f"{path}[]", f"{path}.*", f"{path}.*[]")
        if "anyOf" in field:  # versions of the library differ in the order
            field["anyOf"].sort(key=lambda choice: choice.get("type") == "null")
        if text := next((described[way] for way in ways if way in described), ""):
            field.setdefault("description", text)
    return {"$schema": DIALECT, "title": f"fusionscope {command} --format json", **schema}


class Types:
    """The types of a document as JSON has them, and the classes that they stand for, by name."""

    def __init__(self) -> None:
        self.classes: dict[str, type] = {}
        self._published: dict[type, type] = {}

    def published(self, kind: Any) -> Any:
        """Return a type with the fields that JSON has, which are never missing there."""
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self.published(arguments[0])
        if arguments:
            parts = tuple(self.published(part) for part in arguments if part is not ...)
            if origin in (Union, UnionType):
                return functools.reduce(operator.or_, parts)
            return list[parts[0]] if len(set(parts)) == 1 and origin is tuple else origin[parts]
        if kind is Path:
            return str
        if not isinstance(kind, type):
            return kind
        if issubclass(kind, Enum):
            self.classes[kind.__name__] = kind
        elif issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind):
            if kind not in self._published:
                self._published[kind] = self._struct(kind)
            return self._published[kind]
        return kind

    def _struct(self, kind: type) -> type:
        self.classes[kind.__name__] = kind
        names, config = names_in_json(kind), getattr(kind, "__struct_config__", None)
        return msgspec.defstruct(
            kind.__name__,
            [(name, self.published(_hint(kind, name))) for name in names],
            rename=names,
            tag_field=config and config.tag_field,
            tag=config and config.tag,
        )


def _hint(kind: type, name: str) -> Any:
    attribute = getattr(kind, name, None)
    if isinstance(attribute, property):
        return get_type_hints(attribute.fget)["return"]
    return get_type_hints(kind, include_extras=True)[name]


def _describe(type_: dict[str, Any], cls: type | None) -> None:
    """Take the summary and the meanings of fields from docstrings."""
    type_.pop("description", None)
    if cls is None:
        return
    names = {} if issubclass(cls, Enum) else names_in_json(cls)
    for kind in cls.__mro__:
        for name, text in _MEANING.findall(_docstring(kind)):
            if field := type_.get("properties", {}).get(names.get(name)):
                field.setdefault("description", " ".join(text.split()))
    summary = _docstring(cls).partition("\n\n")[0]
    if summary and not _MEANING.match(summary):
        type_["description"] = " ".join(summary.split())


def _docstring(cls: type) -> str:
    return inspect.cleandoc(cls.__dict__.get("__doc__") or "").replace("``", "`")


def _fields(
    schema: dict[str, Any], part: dict[str, Any], path: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The fields of all objects with their paths: those of a type once for each place of it."""
    for choice in part.get("anyOf", ()):
        yield from _fields(schema, choice, path)
    if "items" in part:
        yield from _fields(schema, part["items"], f"{path}[]")
    if isinstance(part.get("additionalProperties"), dict):
        yield from _fields(schema, part["additionalProperties"], f"{path}.*")
    if "$ref" in part:
        type_ = schema["$defs"][part["$ref"].rpartition("/")[2]]
        for name, field in type_.get("properties", {}).items():
            below = f"{path}.{name}".removeprefix(".")
            yield below, field
            yield from _fields(schema, field, below)


def schemas() -> dict[str, str]:
    """File names and their text."""
    schemas = {command: schema_of(command) for command in DOCUMENTS}
    # What several commands print is described where docs/json.md does so in full.
    known: dict[tuple[str, str], str] = {}
    for schema in schemas.values():
        for name, type_ in schema["$defs"].items():
            for field, about in type_.get("properties", {}).items():
                text = about.get("description", "as ")
                if text.startswith("as ") and (name, field) in known:
                    about["description"] = known[name, field]
                elif not text.startswith("as "):
                    known.setdefault((name, field), text)
    return {
        f"{command}.json": json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        for command, schema in schemas.items()
    }


if __name__ == "__main__":
    SCHEMA.mkdir(exist_ok=True)
    for name, text in schemas().items():
        (SCHEMA / name).write_text(text, encoding="utf-8")
