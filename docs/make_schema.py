"""Writes docs/schema/: the JSON Schema of what each command prints with ``--format json``.

The structure comes from the types in fusionscope/report/documents/, the descriptions of fields from
the tables of docs/json.md.

python docs/make_schema.py
"""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fusionscope.report.documents import COMMANDS, document_of

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
    schema = msgspec.json.schema(document_of(command))
    for type_ in schema["$defs"].values():
        if "description" in type_:  # a docstring, of which Python versions keep the indent or not
            _describe(type_)
    described = tables()[command]
    for path, field in _fields(schema, {"$ref": schema["$ref"]}, ""):
        ways = (path, f"{path}[]", f"{path}.*", f"{path}.*[]")
        if "anyOf" in field:  # versions of the library differ in the order
            field["anyOf"].sort(key=lambda choice: choice.get("type") == "null")
        if text := next((described[way] for way in ways if way in described), ""):
            field.setdefault("description", text)
    return {"$schema": DIALECT, "title": f"fusionscope {command} --format json", **schema}


def _describe(type_: dict[str, Any]) -> None:
    """Take the summary and the meanings of fields from a docstring."""
    summary, *more = inspect.cleandoc(type_.pop("description")).replace("``", "`").split("\n\n")
    meanings = _MEANING.findall("\n".join([summary, *more][-1:]))
    for name, text in meanings:
        if name in type_.get("properties", ()):
            type_["properties"][name]["description"] = " ".join(text.split())
    if more or not meanings:
        type_["description"] = " ".join(summary.split())


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
    made = {command: schema_of(command) for command in COMMANDS}
    # What several commands print is described where docs/json.md does so in full.
    known: dict[tuple[str, str], str] = {}
    for schema in made.values():
        for name, type_ in schema["$defs"].items():
            for field, about in type_.get("properties", {}).items():
                text = about.get("description", "as ")
                if text.startswith("as ") and (name, field) in known:
                    about["description"] = known[name, field]
                elif not text.startswith("as "):
                    known.setdefault((name, field), text)
    return {
        f"{command}.json": json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        for command, schema in made.items()
    }


if __name__ == "__main__":
    SCHEMA.mkdir(exist_ok=True)
    for name, text in schemas().items():
        (SCHEMA / name).write_text(text, encoding="utf-8")
