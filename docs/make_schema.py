"""Writes docs/schema/ and docs/json.md: what each command prints with ``--format json``.

Both come from the types of results, and from forms of them in fusionscope/report/documents/: their
docstrings say what a type is and, one ``name: meaning`` each, what its fields mean.

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

_HEAD = """# JSON

**What does `--format json` print?**

Each document names its schema with a version. New fields may appear under the same version;
existing ones keep their meaning. Sizes are bytes, and a place in a program is `file:line`. `python
docs/make_schema.py` writes this page and the JSON Schemas from the types of results.

| command | document | schema |
|---|---|---|
"""
_COMMANDS = {
    "explain": "explain DUMP",
    "verify": "verify DUMP",
    "rules": "rules [ID]",
    "recipes": "recipes [ID]",
    "history": "history DUMP [NAME]",
    "diff": "diff BEFORE AFTER",
    "check": "check [DUMP…]",
    "capture": "capture TARGET",
    "upgrade": "upgrade TARGET --from RELEASE --to RELEASE",
    "rerun": "rerun DUMP",
    "self_test": "rerun --self-test",
    "tune": "tune DUMP",
    "bisect": "bisect DUMP",
    "experiments": "experiment DUMP 'P -> C'",
    "drift": "verify DUMP --drift",
    "study": "study FOLDER",
    "doctor": "doctor",
    "survey": "survey PATHS -o DIR",
    "survey_report": "survey report DIR",
    "survey_query": "survey query DIR SQL",
    "parse": "parse FILE",
}


def schema_of(command: str) -> dict[str, Any]:
    """Return the schema of one command."""
    return _schema_and_types(command)[0]


def _schema_and_types(command: str) -> tuple[dict[str, Any], "Types"]:
    types = Types()
    schema = msgspec.json.schema(types.published(document_of(command)))
    for type_ in schema["$defs"].values():
        _describe(type_, types.classes.get(type_["title"]))
        for field in type_.get("properties", {}).values():
            if "anyOf" in field:  # versions of the library differ in the order
                field["anyOf"].sort(key=lambda choice: choice.get("type") == "null")
    return {"$schema": DIALECT, "title": f"fusionscope {command} --format json", **schema}, types


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


def schemas() -> dict[str, str]:
    """Return file names and their text."""
    return {
        f"{command}.json": json.dumps(schema_of(command), indent=1, ensure_ascii=False) + "\n"
        for command in DOCUMENTS
    }


class Page:
    """docs/json.md: each type once, where it first occurs."""

    def __init__(self) -> None:
        self._headings: dict[type, str] = {}

    def text(self) -> str:
        commands, sections = [], []
        for command in DOCUMENTS:
            sections += [f"## {command}", *self._tables(command)]
            tag = document_of(command).__struct_config__.tag
            commands.append(
                f"| `fusionscope {_COMMANDS[command]} --format json` | [{command}](#{command}) "
                f"| [`{tag}`](schema/{command}.json) |"
            )
        return _HEAD + "\n".join(commands) + "\n\n" + "\n\n".join(sections) + "\n"

    def _tables(self, command: str) -> Iterator[str]:
        schema, types = _schema_and_types(command)
        root = _name(schema)
        objects = _objects(schema, root)
        first = [name for name in objects if types.classes[name] not in self._headings]
        self._headings |= {types.classes[name]: f"{command}: {name}" for name in first}
        for name in first:
            type_ = schema["$defs"][name]
            if name != root:
                yield f"### {command}: {name}"
            if "description" in type_:
                yield type_["description"]
            rows = (
                f"| `{field}` | {self._type(schema, types, part)} | {part.get('description', '')} |"
                for field, part in type_["properties"].items()
                if field != "schema"
            )
            yield "\n".join(("| field | type | meaning |\n|---|---|---|", *rows))

    def _type(self, schema: dict[str, Any], types: Types, part: dict[str, Any]) -> str:
        if "anyOf" in part:
            return " or ".join(self._type(schema, types, choice) for choice in part["anyOf"])
        if "$ref" in part:
            type_ = schema["$defs"][_name(part)]
            if "enum" in type_:
                return ", ".join(f"`{value}`" for value in type_["enum"])
            heading = self._headings[types.classes[_name(part)]]
            return f"[{_name(part)}](#{heading.lower().replace(': ', '-')})"
        if part.get("type") == "array":
            if part.get("items"):
                return f"list of {self._type(schema, types, part['items'])}"
            kinds = [self._type(schema, types, kind) for kind in part.get("prefixItems", ())]
            return f"list of {' and '.join(kinds)}" if kinds else "list"
        if isinstance(part.get("additionalProperties"), dict):
            return f"object of {self._type(schema, types, part['additionalProperties'])}"
        return {"integer": "number"}.get(part.get("type", "any"), part.get("type", "any"))


def _name(part: dict[str, Any]) -> str:
    name: str = part["$ref"].rpartition("/")[2]
    return name


def _objects(schema: dict[str, Any], root: str) -> list[str]:
    """Return the types of objects, each before those of its fields."""
    names: dict[str, None] = {}
    pending: list[dict[str, Any]] = [{"$ref": f"#/$defs/{root}"}]
    while pending:
        part = pending.pop()
        inner = [*part.get("anyOf", ()), *part.get("prefixItems", ())]
        inner += [part[key] for key in ("items", "additionalProperties") if part.get(key)]
        if "$ref" in part and _name(part) not in names:
            type_ = schema["$defs"][_name(part)]
            if "properties" in type_:
                names[_name(part)] = None
                inner += type_["properties"].values()
        pending += [kind for kind in reversed(inner) if isinstance(kind, dict)]
    return list(names)


if __name__ == "__main__":
    SCHEMA.mkdir(exist_ok=True)
    for name, text in schemas().items():
        (SCHEMA / name).write_text(text, encoding="utf-8")
    (DOCS / "json.md").write_text(Page().text(), encoding="utf-8")
