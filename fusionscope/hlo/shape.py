"""Shapes and layouts, and how they are read and printed."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fusionscope.errors import UnusableInput, quoted
from fusionscope.hlo.forms import Joints, fill
from fusionscope.hlo.grammar import derive
from fusionscope.hlo.search import unfold
from fusionscope.hlo.text import ARRAY

TUPLE = "tuple"
BUFFER = "buffer"

_BITS = {
    "pred": 8,  # one byte in memory
    **{f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "c64": 64,
    "c128": 128,
    "f4e2m1fn": 4,
    "f8e3m4": 8,
    "f8e4m3": 8,
    "f8e4m3b11fnuz": 8,
    "f8e4m3fn": 8,
    "f8e4m3fnuz": 8,
    "f8e5m2": 8,
    "f8e5m2fnuz": 8,
    "f8e8m0fnu": 8,
}
ELEMENT_TYPES = frozenset(_BITS) | {"token", "opaque"}


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout: ``minor_to_major`` and, verbatim as printed after the colon, its other
    properties.

    ``properties`` holds tiles, element size, memory space and so on, for example
    ``T(8,128)(2,1)S(1)``. The common ones have a property below.
    """

    minor_to_major: tuple[int, ...]
    properties: str = ""

    @property
    def tiles(self) -> tuple[tuple[int | None, ...], ...]:
        """The tiles, outermost first; None where a tile combines a dimension (``*``)."""
        tiles: tuple[tuple[int | None, ...], ...] = _properties(self.properties).get("T", ())
        return tiles

    @property
    def memory_space(self) -> int:
        """The memory space; 0 unless the layout has ``S(n)``."""
        space: int = _properties(self.properties).get("S", 0)
        return space

    @property
    def element_size_in_bits(self) -> int | None:
        """The size of packed elements in bits (``E(bits)``), or None."""
        return _properties(self.properties).get("E")

    def __str__(self) -> str:
        order = ",".join(map(str, self.minor_to_major))
        return f"{{{order}:{self.properties}}}" if self.properties else f"{{{order}}}"


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """An array, tuple, token, opaque or buffer shape.

    ``dimensions`` are numbers of elements; None is unbounded. ``dynamic`` says which of them are
    upper bounds. ``elements`` are the shapes inside a tuple or buffer.
    """

    element_type: str
    dimensions: tuple[int | None, ...] = ()
    dynamic: tuple[bool, ...] = ()
    layout: Layout | None = None
    elements: tuple[Shape, ...] = ()
    # What was asked for before: a module has few shapes, and each is asked very often.
    _element_count: int | None = field(default=None, init=False, repr=False)
    _byte_size: int | None = field(default=None, init=False, repr=False)
    _text: str | None = field(default=None, init=False, repr=False)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Shape) and (
            self.dimensions == other.dimensions
            and self.element_type == other.element_type
            and self.layout == other.layout
            and self.dynamic == other.dynamic
            and self.elements == other.elements
        )

    def __hash__(self) -> int:
        return hash((self.element_type, self.dimensions, self.layout, self.elements))

    @property
    def is_tuple(self) -> bool:
        return self.element_type == TUPLE

    @property
    def is_array(self) -> bool:
        return self.element_type in _BITS

    @property
    def is_floating(self) -> bool:
        """Whether the elements are floating-point or complex numbers."""
        return self.is_array and self.element_type.startswith(("f", "bf", "c"))

    @property
    def rank(self) -> int:
        return len(self.dimensions)

    @property
    def element_count(self) -> int:
        """The elements of an array (upper bounds if dynamic, unbounded counted as 1)."""
        if self._element_count is None:
            count = math.prod([size if size is not None else 1 for size in self.dimensions])
            object.__setattr__(self, "_element_count", count)
            return count
        return self._element_count

    @property
    def bits(self) -> int:
        """The bits of one element of an array, unpacked; 0 for other shapes."""
        return _BITS.get(self.element_type, 0)

    @property
    def byte_size(self) -> int:
        """The bytes of all arrays in this shape, unpadded; tokens and opaque values
        count 0.

        Elements of less than a byte are packed only if the layout says so.
        """
        if self._byte_size is not None:
            return self._byte_size
        total = 0
        pending = [self]
        while pending:
            shape = pending.pop()
            if shape.elements:
                pending.extend(shape.elements)
            elif shape.is_array:
                packed = shape.layout.element_size_in_bits if shape.layout else None
                bits = packed or max(8, _BITS[shape.element_type])
                total += (shape.element_count * bits + 7) // 8
        object.__setattr__(self, "_byte_size", total)
        return total

    def parts(self) -> Iterable[tuple[tuple[int, ...], Shape]]:
        """Return this shape and all in it if it is a tuple, with their indices, in order."""
        whole: list[tuple[tuple[int, ...], Shape]] = [((), self)]
        return unfold(whole, _elements) if self.is_tuple else whole

    def compatible(self, other: Shape) -> bool:
        """Return whether shapes are equal apart from layouts and marks of dynamic dimensions."""
        if self.dimensions == other.dimensions and not self.elements and not other.elements:
            return self.element_type == other.element_type
        pending = [(self, other)]
        while pending:
            first, second = pending.pop()
            if (
                first.element_type != second.element_type
                or len(first.dimensions) != len(second.dimensions)
                or len(first.elements) != len(second.elements)
                or any(
                    a != b
                    for a, b in zip(first.dimensions, second.dimensions, strict=True)
                    if a is not None and b is not None
                )
            ):
                return False
            pending.extend(zip(first.elements, second.elements, strict=True))
        return True

    def __str__(self) -> str:
        if self.element_type not in (TUPLE, BUFFER):
            return self._array_text()
        parts: list[str] = []
        pending: list[Shape | str] = [self]
        while pending:
            part = pending.pop()
            if isinstance(part, str):
                parts.append(part)
            elif part.element_type in (TUPLE, BUFFER):
                pending.append(")")
                for index, element in reversed(list(enumerate(part.elements))):
                    pending.append(element)
                    if index:
                        pending.append(", ")
                pending.append("(" if part.is_tuple else "b(")
            else:
                parts.append(part._array_text())
        return "".join(parts)

    def _array_text(self) -> str:
        if self._text is not None:
            return self._text
        if True in self.dynamic:
            dimensions = ",".join(
                "?" if size is None else f"<={size}" if dynamic else str(size)
                for size, dynamic in zip(self.dimensions, self.dynamic, strict=True)
            )
        else:
            dimensions = ",".join(map(str, self.dimensions))
        text = f"{self.element_type}[{dimensions}]{self.layout or ''}"
        object.__setattr__(self, "_text", text)
        return text


_ARRAY = re.compile(ARRAY)
# An array is cut at its numbers, a tuple at its arrays.
_OF_ARRAYS = Joints("array", "shape", r"(?<![\w.])(?=\d)", [(r"\d+", "0", True)])
_OF_TUPLES = Joints("tuple", "shape", r"(?<!\w)(?=[a-z])", [(ARRAY, "f32[]", True)])
_OF_LAYOUTS = Joints("layout", "layout", r"(?<![\w.])(?=\d)", [(r"\d+", "0", True)])
_MOST_DIGITS = 18
# Most shapes: no dimension is dynamic, and the layout is an order alone.
_NUMBERS = r"(?:\d{1,18},)*\d{1,18}"
_PLAIN = re.compile(rf"([a-z]\w*)\[({_NUMBERS}|)\](?:\{{({_NUMBERS})\}})?")


class ShapeTable:
    """Shapes by their text, so that each text is read once."""

    def __init__(self) -> None:
        self.known: dict[str, Shape] = {}
        # Operations on these shapes that are known to be sound (see ``validate``).
        self.fitting: set[tuple[str, ...]] = set()
        # The same for lines, by their identity and the shapes of their operands: each line as it is
        # written, and with what it omits.
        self.sound: dict[tuple[Hashable, ...], tuple[Any, Any]] = {}

    def __getitem__(self, text: str) -> Shape:
        try:
            return self.known[text]
        except KeyError:
            shape = self.known[text] = self._read(text)
            return shape

    def _read(self, text: str) -> Shape:
        """Raises ``UnusableInput`` with a column within ``text``."""
        if plain := _PLAIN.fullmatch(text):
            return _plain_array(plain, text)
        is_array = "(" not in text.partition("[")[0]
        joints = _OF_ARRAYS if is_array else _OF_TUPLES
        try:
            skeleton, slots = joints.cut(text)
            form = joints.form(skeleton)
        except UnusableInput:
            raise _malformed(text) from None
        return _array(form, slots, text) if is_array else self._tuple(form, slots, text)

    def _tuple(self, form: Any, slots: list[str], text: str) -> Shape:
        elements: list[Shape] = []
        kind, inside = form
        for part in inside:
            if part[0] == "arrays":
                elements += [self._element(array, text) for array in _ARRAY.findall(slots[part[1]])]
            else:
                elements.append(self._tuple(part, slots, text))
        return Shape(TUPLE if kind == "tuple" else BUFFER, elements=tuple(elements))

    def _element(self, array: str, text: str) -> Shape:
        try:
            return self[array]
        except UnusableInput as error:
            column = text.find(array) + (error.column or 1)
            raise UnusableInput(error.problem, column=column) from None


def _elements(part: tuple[tuple[int, ...], Shape]) -> Iterator[tuple[tuple[int, ...], Shape]]:
    index, shape = part
    if shape.is_tuple:
        yield from (((*index, number), element) for number, element in enumerate(shape.elements))


def _plain_array(array: re.Match[str], text: str) -> Shape:
    """Return a shape that the grammar would read alike."""
    element_type, sizes, order = array.groups()
    _check_type(element_type)
    dimensions = tuple(map(int, sizes.split(","))) if sizes else ()
    layout = Layout(tuple(map(int, order.split(",")))) if order else None
    if layout is not None:
        _check_order(layout, len(dimensions), text)
    return Shape(element_type, dimensions, (False,) * len(dimensions), layout)


def _check_type(element_type: str) -> None:
    if element_type not in ELEMENT_TYPES:
        raise UnusableInput(f"unknown element type {quoted(element_type)}", column=1)


def _check_order(layout: Layout, rank: int, text: str) -> None:
    if len(layout.minor_to_major) != rank:
        raise UnusableInput(
            f"the layout of {quoted(text)} orders {len(layout.minor_to_major)} dimensions, "
            f"expected {rank}",
            column=1,
        )
    if set(layout.minor_to_major) != set(range(rank)):
        raise UnusableInput(
            f"the layout of {quoted(text)} is not an order of its dimensions", column=1
        )


def _array(form: Any, slots: list[str], text: str) -> Shape:
    _, element_type, sizes, ordered = form
    _check_type(element_type)
    dimensions: list[int | None] = []
    dynamic: list[bool] = []
    for slot, is_dynamic in sizes:
        sizes_here = [None] if slot is None else _integers(slots[slot], text)
        dimensions += sizes_here
        dynamic += [is_dynamic, *[False] * (len(sizes_here) - 1)]
    layout = None
    if ordered is not None:
        layout = _layout(ordered, slots, text)
        _check_order(layout, len(dimensions), text)
    return Shape(element_type, tuple(dimensions), tuple(dynamic), layout)


def _layout(form: dict[str, Any], slots: list[str], text: str) -> Layout:
    properties = fill(form["properties"], slots).strip()
    if "P" in form and "D" not in form:
        raise UnusableInput(
            f"the layout of {quoted(text)} has a physical shape, expected one for sparse arrays "
            "alone",
            column=1,
        )
    for slot in slots:
        _integers(slot, text)
    order = [number for slot in form["order"] for number in _integers(slots[slot], text)]
    return Layout(tuple(order), properties)


@lru_cache(maxsize=4096)
def _properties(text: str) -> dict[str, Any]:
    """Return the properties of a layout (after the colon): numbers and tiles by letter."""
    whole = f"{{:{text}}}"
    skeleton, slots = _OF_LAYOUTS.cut(whole)
    form = _OF_LAYOUTS.form(skeleton)
    read: dict[str, Any] = {}
    for letter, content in form.items():
        if letter == "T":
            read["T"] = tuple(_tile(tile, slots) for tile in content)
        elif letter in ("E", "L", "M", "S") and content:
            read[letter] = int(slots[content[0]])
    return read


def _tile(form: list[int | str], slots: list[str]) -> tuple[int | None, ...]:
    sizes: list[int | None] = []
    for size in form:
        sizes += [None] if isinstance(size, str) else map(int, slots[size].split(","))
    return tuple(sizes)


def _integers(slot: str, text: str) -> list[int]:
    numbers = slot.split(",")
    if any(len(number.strip()) > _MOST_DIGITS for number in numbers):
        raise UnusableInput(
            f"found a number of more than {_MOST_DIGITS} digits in {quoted(text)}, expected a "
            "smaller one",
            column=1,
        )
    return [int(number) for number in numbers]


def _malformed(text: str) -> UnusableInput:
    """Return an error for a text that has no form, with the grammar's message if it has one."""
    column = 1
    try:
        derive("shape", text)
    except UnusableInput as error:
        column = error.column or 1
        if "{" in text[: column - 1].rpartition("}")[2]:  # in a layout
            return UnusableInput(error.problem, column=column)
    found_text = quoted(text[column - 1 : column + 19]) if column <= len(text) else "the end"
    return UnusableInput(
        f"found {found_text}, expected a shape such as f32[2,3]{{1,0}}", column=column
    )
