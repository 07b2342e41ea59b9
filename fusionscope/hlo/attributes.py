"""Attributes of instructions and modules: kept verbatim, read on demand."""

from __future__ import annotations

import json
import re
from typing import Any

from fusionscope.hlo.text import BRACES, BRACKETS, NAME, PARENTHESES, STRING, strip_comments

_VALUE = rf"(?!\s)(?:[^,{{}}()\[\]\"']+|{STRING}|{BRACES}|{PARENTHESES}|{BRACKETS})+"

_ATTRIBUTE = re.compile(rf",\s*([A-Za-z_][\w.\-]*)=\s*({_VALUE})", re.DOTALL)
_METADATA = re.compile(rf"\b(\w+)=\s*({STRING}|{BRACES}|[^\s,}}]+)", re.DOTALL)
_INTEGER = re.compile(r"-?\d{1,20}")
_INTEGERS = re.compile(r"\{\s*(?:-?\d{1,20}(?:\s*,\s*-?\d{1,20})*\s*)?\}")
_NAME = re.compile(NAME)
_NAMES = re.compile(rf"\{{?\s*(?:%?{NAME}(?:\s*,\s*%?{NAME})*\s*)?\}}?")

# Attributes that name computations.
CALLS = frozenset(
    """branch_computations body called_computations calls condition false_computation scatter select
    to_apply true_computation""".split()
)
# Strings and braces are taken whole, so that what looks like a call inside of them is none.
_CALLED = re.compile(
    rf"{STRING}|{BRACES}|,\s*(?:{'|'.join(sorted(CALLS))})=\s*(%?{NAME}|\{{[^{{}}\"']*\}})",
    re.DOTALL,
)
_NAME_LISTS = CALLS | {"control-predecessors"}


def split_attributes(text: str) -> dict[str, str]:
    """``, key=value, key=value`` as a dictionary of verbatim values."""
    return {key: value.strip() for key, value in _ATTRIBUTE.findall(text)}


def cut_attributes(text: str) -> list[str] | None:
    """The same text cut before each attribute, or None where it cannot be."""
    pieces = [found[0] for found in _ATTRIBUTE.finditer(text)]
    return pieces if "".join(pieces) == text.rstrip() else None


def called_names(text: str) -> tuple[str, ...]:
    """Names of the computations that the attributes in ``text`` call, in the order printed."""
    return read_names(",".join(_CALLED.findall(text)))


def read_names(value: str) -> tuple[str, ...]:
    """``{%a, %b}`` or ``%a`` as names without the percent sign."""
    return tuple(_NAME.findall(value))


def read_value(key: str, value: str) -> Any:
    """The value of one attribute as data.

    Integers, truth values, strings, lists of integers (a tuple), names (of computations and
    instructions, a tuple), metadata and JSON (a dictionary) are read; everything else comes back
    verbatim, without comments.
    """
    if "/*" in value:
        value = strip_comments(value).strip()
    if key == "metadata":
        return read_metadata(value)
    if key in _NAME_LISTS and _NAMES.fullmatch(value):
        return read_names(value)
    if value in ("true", "false"):
        return value == "true"
    if _INTEGER.fullmatch(value):
        return int(value)
    if _INTEGERS.fullmatch(value):
        return tuple(int(number) for number in value[1:-1].split(",") if number.strip())
    if re.fullmatch(STRING, value, re.DOTALL):
        return unescape(value)
    if value.startswith('{"'):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def read_slice(value: str) -> list[range]:
    """``{[0:8:2], [1:4]}`` as the indices that a slice takes, by dimension."""
    parts = [part.strip("[]").split(":") for part in value.strip("{}").replace(" ", "").split(",")]
    return [range(*map(int, part)) for part in parts if part != [""]]


def read_metadata(value: str) -> dict[str, str]:
    """``{op_name="a" stack_frame_id=3}`` as a dictionary; strings are unescaped."""
    return {key: unescape(raw) if raw[0] in "\"'" else raw for key, raw in _METADATA.findall(value)}


_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def unescape(string: str) -> str:
    """A quoted string without its quotes and C escapes."""
    body = string[1:-1]
    if "\\" not in body:
        return body

    def character(found: re.Match[str]) -> str:
        octal, hexadecimal, letter = found.groups()
        if letter is not None:
            return _LETTERS.get(letter, letter)
        return chr(int(octal, 8) & 0xFF if octal else int(hexadecimal, 16))

    return _ESCAPE.sub(character, body)
