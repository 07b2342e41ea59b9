"""Converts a result into JSON.

A result whose fields are those of the JSON object needs no form. For others, a form lists the
fields of the object with their types: each takes the attribute of the result that has its name, or
the value that ``At`` leads to. An underscore at the end of a name is dropped in JSON (``pass_``).
An empty text is null if the field may be null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec


@dataclass(frozen=True, slots=True)
class At:
    """The source of a field: a path of attributes, such as ``"users.name"``, or a function of the
    result.

    In a path, numbers are indices of a tuple, attributes of a list are those of its elements, and
    None stays None. An empty path is the result itself.
    """

    source: str | Callable[[Any], Any] = ""

    def __call__(self, result: Any) -> Any:
        if callable(self.source):
            return self.source(result)
        for name in self.source.split(".") if self.source else ():
            result = _attribute(result, name)
        return result


def _attribute(value: Any, name: str) -> Any:
    if value is None:
        return None
    if name.isdecimal():
        return value[int(name)]
    if isinstance(value, list | tuple) and not hasattr(value, name):
        return [getattr(element, name) for element in value]
    return getattr(value, name)


class Form(msgspec.Struct, rename=lambda name: name.removesuffix("_")):
    """One JSON object. A form that inherits fields lists in ``inherited`` what these are about,
    unless it is the result itself.
    """

    inherited: ClassVar[At] = At()


SomeForm = TypeVar("SomeForm", bound=Form)
Converter = Callable[[Any], Any]


def form_of(form: type[SomeForm], result: object) -> SomeForm:
    """Return ``result`` in this form."""
    form_value: SomeForm = _converter(form)(result)
    return form_value


@cache
def _converter(kind: Any) -> Converter:
    """Return a function that makes a value of this type from a part of a result."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType) and NoneType in arguments:
        return _or_null(_converter(arguments[0]))
    if origin is list:
        element = _converter(arguments[0])
        return lambda values: [element(value) for value in values]
    if origin is dict:
        return _by_name(_converter(arguments[1]))
    if isinstance(kind, type) and issubclass(kind, Form):
        return _of_attributes(kind)
    if isinstance(kind, type) and issubclass(kind, str | Enum):
        return kind
    return _as_it_is  # numbers, and results that are written unchanged


def _as_it_is(value: Any) -> Any:
    return value


def _or_null(convert: Converter) -> Converter:
    return lambda value: None if value is None or value == "" else convert(value)


def _by_name(convert: Converter) -> Converter:
    """Convert a dictionary, or rows that begin with the name."""

    def make(values: Any) -> dict[str, Any]:
        if isinstance(values, Mapping):
            return {str(name): convert(value) for name, value in values.items()}
        return {
            name: convert(fields[0] if len(fields) == 1 else fields) for name, *fields in values
        }

    return make


def _of_attributes(form: type[Form]) -> Converter:
    fields: list[tuple[str, Converter, Converter]] = []

    def make(result: Any) -> Form:
        return form(**{name: convert(get(result)) for name, get, convert in fields})

    own_fields = form.__annotations__
    for name, hint in get_type_hints(form, include_extras=True).items():
        if name not in form.__struct_fields__:
            continue
        kind, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        get = next(
            (metadata for metadata in extras if isinstance(metadata, At)),
            At(name.removesuffix("_")),
        )
        fields.append(
            (name, get if name in own_fields else _behind(form.inherited, get), _converter(kind))
        )
    return make


def _behind(first: At, then: At) -> Converter:
    return lambda result: then(first(result))
