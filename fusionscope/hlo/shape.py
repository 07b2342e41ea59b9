"""Shapes and layouts, and how they are read and printed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from fusionscope.errors import UnusableInput, quoted
from fusionscope.hlo.grammar import check

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
    """``minor_to_major`` and, verbatim as printed behind the colon, what else a layout says.

    ``properties`` holds tiles, element size, memory space and so on, for example
    ``T(8,128)(2,1)S(1)``; the most used ones have a property below.
    """

    minor_to_major: tuple[int, ...]
    properties: str = ""

    @property
    def tiles(self) -> tuple[tuple[int | None, ...], ...]:
        """The tiles, outermost first; None where a tile combines a dimension (``*``)."""
        tiled = re.match(r"(?:D\([^)]*\))?T((?:\([^)]*\))+)", self.properties)
        if tiled is None:
            return ()
        return tuple(
            tuple(None if size == "*" else int(size) for size in tile.split(",") if size)
            for tile in re.findall(r"\(([^)]*)\)", tiled[1])
        )

    @property
    def memory_space(self) -> int:
        """0 unless the layout says otherwise (``S(n)``)."""
        found = re.search(r"(?<![A-Z])S\((\d+)\)", self.properties)
        return int(found[1]) if found else 0

    @property
    def element_size_in_bits(self) -> int | None:
        """What the layout says of packed elements (``E(bits)``), or None."""
        found = re.search(r"E\((\d+)\)", self.properties)
        return int(found[1]) if found else None

    def __str__(self) -> str:
        order = ",".join(map(str, self.minor_to_major))
        return f"{{{order}:{self.properties}}}" if self.properties else f"{{{order}}}"


@dataclass(frozen=True, slots=True)
class Shape:
    """An array, tuple, token, opaque or buffer shape.

    ``dimensions`` are numbers of elements; ``dynamic`` says which of them are upper bounds, and an
    unbounded one is None. ``elements`` are the shapes inside a tuple or buffer.
    """

    element_type: str
    dimensions: tuple[int | None, ...] = ()
    dynamic: tuple[bool, ...] = ()
    layout: Layout | None = None
    elements: tuple[Shape, ...] = ()

    @property
    def is_tuple(self) -> bool:
        return self.element_type == TUPLE

    @property
    def is_array(self) -> bool:
        return self.element_type in _BITS

    @property
    def rank(self) -> int:
        return len(self.dimensions)

    @property
    def element_count(self) -> int:
        """Elements of an array (upper bounds where dynamic, unbounded counted as 1)."""
        return math.prod(size if size is not None else 1 for size in self.dimensions)

    @property
    def bits(self) -> int:
        """Bits of one element of an array, unpacked; 0 where it is none."""
        return _BITS.get(self.element_type, 0)

    @property
    def byte_size(self) -> int:
        """Bytes of all arrays in this shape, unpadded; tokens and opaque values count 0.

        Elements of less than a byte are packed only where the layout says so.
        """
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
        return total

    def compatible(self, other: Shape) -> bool:
        """Equal but for layouts and dynamic bounds' marks."""
        if self.dimensions == other.dimensions and not self.elements and not other.elements:
            return self.element_type == other.element_type
        pending = [(self, other)]
        while pending:
            one, two = pending.pop()
            if (
                one.element_type != two.element_type
                or len(one.dimensions) != len(two.dimensions)
                or len(one.elements) != len(two.elements)
                or any(
                    a != b
                    for a, b in zip(one.dimensions, two.dimensions, strict=True)
                    if a is not None and b is not None
                )
            ):
                return False
            pending.extend(zip(one.elements, two.elements, strict=True))
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
        if True in self.dynamic:
            dimensions = ",".join(
                "?" if size is None else f"<={size}" if dynamic else str(size)
                for size, dynamic in zip(self.dimensions, self.dynamic, strict=True)
            )
        else:
            dimensions = ",".join(map(str, self.dimensions))
        return f"{self.element_type}[{dimensions}]{self.layout or ''}"


_ARRAY = re.compile(r"([a-z]\w*)\s*\[([^\[\]]*)\]\s*(?:\{([^{}]*)\})?")
_DIMENSION = re.compile(r"\s*(?:(<=)?\s*(\d{1,18})|(\?))\s*")
_TOO_LONG = re.compile(r"\d{19}")
_TOKEN = re.compile(rf"\s*(b\(|[(),]|{_ARRAY.pattern})\s*")


class ShapeTable:
    """Shapes by their text: each one is read once."""

    def __init__(self) -> None:
        self.known: dict[str, Shape] = {}
        self._layouts: dict[str, Layout] = {}

    def __getitem__(self, text: str) -> Shape:
        shape = self.known.get(text)
        if shape is None:
            shape = self.known[text] = self._read(text)
        return shape

    def _read(self, text: str) -> Shape:
        """Raises ``UnusableInput`` with a column within ``text``."""
        if array := _ARRAY.fullmatch(text):
            return self._array(array[1], array[2], array[3], text, 0)
        open_tuples: list[tuple[str, list[Shape]]] = []
        done: Shape | None = None
        position = 0
        after_element = False
        while position < len(text) and done is None:
            token = _TOKEN.match(text, position)
            if token is None:
                raise _malformed(text, position)
            kind = token[1]
            if kind in ("(", "b("):
                if after_element:
                    raise _malformed(text, position)
                open_tuples.append((TUPLE if kind == "(" else BUFFER, []))
            elif kind == ",":
                if not (open_tuples and after_element):
                    raise _malformed(text, position)
                after_element = False
            else:
                if kind == ")":
                    if not open_tuples or (open_tuples[-1][1] and not after_element):
                        raise _malformed(text, position)
                    outer, elements = open_tuples.pop()
                    shape = Shape(outer, elements=tuple(elements))
                else:
                    if after_element:
                        raise _malformed(text, position)
                    known = self.known.get(kind)
                    shape = known or self._array(token[2], token[3], token[4], text, position)
                    self.known[kind] = shape
                if open_tuples:
                    open_tuples[-1][1].append(shape)
                else:
                    done = shape
                after_element = True
            position = token.end()
        if done is None or position < len(text):
            raise _malformed(text, position)
        return done

    def _array(
        self, element_type: str, sizes: str, layout: str | None, text: str, position: int
    ) -> Shape:
        if element_type not in ELEMENT_TYPES:
            raise UnusableInput(f"unknown element type {quoted(element_type)}", column=position + 1)
        dimensions: list[int | None] = []
        dynamic: list[bool] = []
        for size in sizes.split(",") if sizes.strip() else ():
            found = _DIMENSION.fullmatch(size)
            if found is None:
                raise _malformed(text, position)
            dimensions.append(None if found[3] else int(found[2]))
            dynamic.append(bool(found[1] or found[3]))
        read = None
        if layout is not None:
            read = self._layout(layout, position)
            if len(read.minor_to_major) != len(dimensions):
                raise UnusableInput(
                    f"the layout of {quoted(text)} orders {len(read.minor_to_major)} "
                    f"dimensions, expected {len(dimensions)}",
                    column=position + 1,
                )
            if set(read.minor_to_major) != set(range(len(dimensions))):
                raise UnusableInput(
                    f"the layout of {quoted(text)} is not an order of its dimensions",
                    column=position + 1,
                )
        return Shape(element_type, tuple(dimensions), tuple(dynamic), read)

    def _layout(self, text: str, position: int) -> Layout:
        layout = self._layouts.get(text)
        if layout is None:
            if _TOO_LONG.search(text):
                raise UnusableInput(
                    f"found a number of more than 18 digits in the layout {quoted(text)}",
                    column=position + 1,
                )
            order, colon, properties = text.partition(":")
            if colon or not re.fullmatch(r"\d+(,\d+)*", order):
                try:
                    check("layout", f"{{{text}}}")
                except UnusableInput as error:
                    raise UnusableInput(error.problem, column=position + 1) from None
                if "P(" in properties and "D(" not in properties:
                    raise UnusableInput(
                        f"the layout {quoted(text)} has a physical shape, expected one for sparse "
                        "arrays alone",
                        column=position + 1,
                    )
            layout = Layout(
                tuple(int(dimension) for dimension in order.split(",") if dimension.strip()),
                properties.strip(),
            )
            self._layouts[text] = layout
        return layout


def _malformed(text: str, position: int) -> UnusableInput:
    found = quoted(text[position : position + 20]) if position < len(text) else "the end"
    return UnusableInput(
        f"found {found}, expected a shape such as f32[2,3]{{1,0}}", column=position + 1
    )
