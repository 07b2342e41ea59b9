"""Literals of constants: whether they fit their shapes, and their values in one notation."""

from __future__ import annotations

import math
import re

from fusionscope.errors import quoted
from fusionscope.hlo.shape import Shape
from fusionscope.hlo.text import strip_comments

_FLOAT = (
    r"(?:-?\d+\.?\d*(?:[eE][+\-]?\d+)?|-\.\d+(?:[eE][+\-]?\d+)?|-?inf|-?nan(?:\(0x[0-9a-fA-F]+\))?)"
)
_END = r"(?![\w.])"
_TRUTH = re.compile(rf"(?:true|false|-?\d+){_END}")
_INTEGER = re.compile(rf"-?\d+{_END}")
_REAL = re.compile(_FLOAT + _END)
_COMPLEX = re.compile(rf"\(\s*{_FLOAT}\s*,\s*{_FLOAT}\s*\)")
_PARTS = re.compile(rf"(?<![\w.]){_FLOAT}")
_PAYLOADS = re.compile(r"nan\((0x[0-9a-fA-F]+)\)")
# Bits of a NaN that a literal can set, for the types that allow it.
_PAYLOAD_BITS = {"f8e5m2": 2, "bf16": 7, "f16": 10, "f32": 23, "c64": 23, "f64": 52, "c128": 52}
_SEPARATORS = re.compile(r"[\s,]+")

# The least numbers that round to infinity: half a step above the largest finite one.
_SINGLE = (2 - 2**-24) * 2.0**127
_TOO_LARGE = {
    "f8e3m4": 15.75,
    "f8e4m3": 248.0,
    "f8e4m3b11fnuz": 31.0,
    "f8e4m3fn": 464.0,
    "f8e4m3fnuz": 248.0,
    "f8e5m2": 61440.0,
    "f8e5m2fnuz": 61440.0,
    "f16": 65520.0,
    "bf16": (2 - 2**-8) * 2.0**127,
    "f32": _SINGLE,
    "c64": _SINGLE,
}


def check_literal(opcode: str, literal: str, shape: Shape) -> str | None:
    """Return what is wrong with the text in the parentheses of a constant or parameter,
    or None.

    ``{...}``, an omitted literal, fits every array. Tuples are not checked. As in the compiler's
    parser, commas between elements are optional.
    """
    if opcode == "parameter":
        if literal.isdecimal() and len(literal) < 10:
            return None
        return f"found {quoted(literal)}, expected the number of a parameter"
    if not shape.is_array:
        return None if shape.is_tuple else f"a constant cannot be a {shape.element_type}"
    scalar = _scalar(shape.element_type)
    if not shape.dimensions:
        if not scalar.fullmatch(literal):
            return f"found {quoted(literal)}, expected one {shape.element_type} value"
    elif literal == "{...}":
        return None
    elif None in shape.dimensions:
        return f"a constant cannot be {shape}"
    elif not _fills(literal, scalar, [size or 0 for size in shape.dimensions]):
        return f"{quoted(literal)} does not fill {shape}"
    for payload in _PAYLOADS.findall(literal) if "nan(" in literal else ():
        bits = _PAYLOAD_BITS.get(shape.element_type, 0)
        if int(payload, 16) >= 1 << bits:
            return f"{payload[:60]} is out of the range of a NaN of {shape.element_type}"
    if excess := _out_of_range(literal, shape.element_type):
        return f"{excess[:60]} is out of the range of {shape.element_type}"
    return None


def _fills(literal: str, scalar: re.Pattern[str], sizes: list[int]) -> bool:
    if 0 in sizes:  # printed as a pair of braces, whatever the rank
        return bool(re.fullmatch(r"[{},\s]*", literal)) and literal.startswith("{")
    if scalar is not _COMPLEX and scalar.fullmatch(literal):
        return True  # the first element; the others are zero
    if any(size > len(literal) for size in sizes):
        return False
    reduced = _SEPARATORS.sub(" ", scalar.sub(" 0 ", literal))
    for size in reversed(sizes):
        reduced, count = re.subn(rf"\{{ ?(?:0 ?){{{size}}}\}}", "0", reduced)
        if not count:
            return False
    return reduced.strip() == "0" and literal.startswith("{")


def _scalar(element_type: str) -> re.Pattern[str]:
    if element_type == "pred":
        return _TRUTH
    if element_type[0] in "su":
        return _INTEGER
    return _COMPLEX if element_type[0] == "c" else _REAL


def _out_of_range(literal: str, element_type: str) -> str | None:
    """Return the first number in ``literal`` that is out of range for ``element_type``."""
    if element_type == "pred":
        return None
    if element_type[0] in "su":
        bits = int(element_type[1:])
        low, high = (
            (-(1 << bits - 1), (1 << bits - 1) - 1)
            if element_type[0] == "s"
            else (0 if bits < 64 else -(1 << 63), (1 << bits) - 1)
        )  # the compiler reads a negative u64 as its two's complement
        number: str
        for number in _INTEGER.findall(literal):
            if len(number) > 20 or not low <= int(number) <= high:
                return number
        return None
    limit = _TOO_LARGE.get(element_type, math.inf)
    for number in _PARTS.findall(literal):
        if number[-3:] != "inf" and "nan" not in number and abs(float(number)) >= limit:
            return number
    return None


_ARRAY = re.compile(r"([a-z]\w*)\[([\d,\s]*)\]")
_ELEMENT = re.compile(r"-?nan\(0x[0-9a-fA-F]+\)|[^\s,{}()]+")
_MOST_ELEMENTS = 1 << 16  # the most that a single printed element is repeated for
# Of each type of floating-point numbers, the bits of its significand, the first one included, and
# the exponent of its smallest normal number.
_PRECISION = {
    "bf16": (8, -126),
    "c64": (24, -126),
    "f16": (11, -14),
    "f32": (24, -126),
    "f4e2m1fn": (2, 0),
    "f8e3m4": (5, -2),
    "f8e4m3": (4, -6),
    "f8e4m3b11fnuz": (4, -10),
    "f8e4m3fn": (4, -6),
    "f8e4m3fnuz": (4, -7),
    "f8e5m2": (3, -14),
    "f8e5m2fnuz": (3, -15),
}


def is_elided(literal: str) -> bool:
    """Return whether the compiler omitted the value of a constant."""
    return "..." in literal


def normal_literal(literal: str, shape: str) -> str:
    """Return the elements of a constant of this shape, without braces, as the numbers that its
    type can hold. An unreadable literal, a tuple, and one that the compiler omitted remain as
    they are.

    As in the compiler's parser, the elements that are missing after a single one are zero. ``-0``
    is a negative zero where the type has one: this is how the compiler prints it.
    """
    array = _ARRAY.match(shape)
    if array is None or is_elided(literal):
        return literal
    element_type, dimensions = array.groups()
    try:
        elements = [
            _normal_element(element, element_type)
            for element in _ELEMENT.findall(strip_comments(literal))
        ]
    except (ValueError, OverflowError):
        return literal
    if len(elements) == 1 and "{" not in literal and dimensions.strip():
        count = math.prod(map(int, dimensions.split(",")))
        if count <= _MOST_ELEMENTS:
            elements += [_normal_element("0", element_type)] * (count - 1)
    return ",".join(elements)


def _normal_element(text: str, element_type: str) -> str:
    if element_type == "pred":
        return str(int(text == "true" or (text != "false" and int(text) != 0)))
    if element_type[0] in "su":
        number = int(text)
        return str(number % (1 << 64) if element_type == "u64" else number)
    if text.endswith(")"):  # the payload of a NaN
        sign, _, payload = text[:-1].partition("nan(")
        usual = 1 << max(_PAYLOAD_BITS.get(element_type, 1) - 1, 0)
        return f"{sign}nan" if int(payload, 16) == usual else f"{sign}nan({int(payload, 16)})"
    if text.lstrip("-") in ("inf", "nan"):
        return text
    return repr(_rounded(float(text), element_type))


def _rounded(number: float, element_type: str) -> float:
    """Return the nearest number of a type, the even one of two."""
    precision = _PRECISION.get(element_type)
    if precision is None or not number or not math.isfinite(number):
        return number
    bits, least = precision
    step = 2.0 ** (max(math.frexp(number)[1] - 1, least) - bits + 1)
    return math.copysign(round(number / step) * step, number)
