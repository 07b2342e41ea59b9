"""Literals of constants: whether they fit their shape, and their values on demand."""

from __future__ import annotations

import re

from fusionscope.hlo.grammar import shorten
from fusionscope.hlo.shape import Shape

_INTEGER = r"-?\d+|true|false"
_FLOAT = (
    r"-?(?:\d+\.?\d*(?:e[+\-]?\d+)?|\.\d+(?:e[+\-]?\d+)?|inf|nan(?:\(0x[0-9a-fA-F]+\))?)|true|false"
)
_COMPLEX = rf"\(\s*(?:{_FLOAT})\s*,\s*(?:{_FLOAT})\s*\)|{_FLOAT}"
_END = r"(?![\w.])"

_SCALARS = {
    kind: re.compile(rf"(?:{pattern}){_END}" if kind != "c" else f"(?:{pattern})")
    for kind, pattern in (("i", _INTEGER), ("f", _FLOAT), ("c", _COMPLEX))
}


def _scalar(shape: Shape) -> re.Pattern[str]:
    if shape.element_type == "pred" or shape.element_type[0] in "su":
        return _SCALARS["i"]
    return _SCALARS["c" if shape.element_type[0] == "c" else "f"]


def check_literal(opcode: str, literal: str, shape: Shape) -> str | None:
    """What is wrong with the text in the parentheses of a constant or parameter, or None.

    ``{...}``, the literal that the compiler left out, fits every array. Tuples are not looked into.
    """
    if opcode == "parameter":
        if literal.isdecimal():
            return None
        return f"found {shorten(repr(literal))}, expected the number of a parameter"
    if not shape.is_array:
        return None
    scalar = _scalar(shape)
    if not shape.dimensions:
        if scalar.fullmatch(literal):
            return None
        return f"found {shorten(repr(literal))}, expected one {shape.element_type} value"
    if literal == "{...}":
        return None
    rest = scalar.sub("0", literal)
    for size in reversed(shape.dimensions):
        inner = rf"0(?:\s*,\s*0){{{size - 1}}}" if size else ""
        rest = re.sub(rf"\{{\s*{inner}\s*\}}", "0", rest)
    if rest.strip() == "0" and literal.lstrip().startswith("{"):
        return None
    return f"{shorten(repr(literal))} does not fill {shape}"
