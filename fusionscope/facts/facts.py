"""What facts are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar

from msgspec import Struct, structs

_PLAIN = frozenset((str, int, float, bool, NoneType))


class Facts(Struct, frozen=True):
    """A part of a result. JSON has the same fields, without those that are ``internal``, and the
    properties that are ``computed``.

    The last paragraph of the docstring says what each field means, in which unit: one ``name:
    meaning`` each, as it is published. ``finding`` is the name of what this is for a module, empty
    if it is only a part of that.
    """

    finding: ClassVar[str] = ""
    internal: ClassVar[tuple[str, ...]] = ()
    computed: ClassVar[tuple[str, ...]] = ()


def to_data(value: Any) -> Any:
    """Return dictionaries, lists, texts and numbers, ready to be written as JSON."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if issubclass(kind, list | tuple):
        return [to_data(element) for element in value]
    if issubclass(kind, Mapping):
        return {str(name): to_data(element) for name, element in value.items()}
    if issubclass(kind, Enum):
        return value.value
    if issubclass(kind, str | Path):
        return str(value)
    schema, getters = _form(kind)
    return schema | {name: to_data(get(value)) for name, get in getters}


@cache
def _form(kind: Any) -> tuple[dict[str, Any], tuple[tuple[str, Callable[[Any], Any]], ...]]:
    """Return what objects of a class begin with in JSON, and how to get each of their fields."""
    names = names_in_json(kind)
    config = getattr(kind, "__struct_config__", None)
    schema = {config.tag_field: config.tag} if config is not None and config.tag_field else {}
    return schema, tuple((name, attrgetter(attribute)) for attribute, name in names.items())


def names_in_json(kind: type) -> dict[str, str]:
    """Return the names in JSON of the published attributes of a class."""
    if is_dataclass(kind):
        return {field.name: field.name for field in fields(kind)}
    names = {field.name: field.encode_name for field in structs.fields(kind)}
    computed = {name: name for name in getattr(kind, "computed", ())}
    internal = getattr(kind, "internal", ())
    return {name: key for name, key in (names | computed).items() if name not in internal}
