"""The memory of a module: ``*_after_optimizations-buffer-assignment.txt``.

It lists every allocation of the final module with the values in it. A value is an array, or the
table of a tuple, that an instruction defines. Values that are never alive at the same time, and
those that overwrite each other in place, have the same offset.

Source: xla/service/buffer_assignment.cc, BufferAssignment::ToString.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from fusionscope.dump.files import as_text
from fusionscope.dump.live_ranges import (
    LiveRanges,
    Position,
    begins_live_ranges,
    parse_live_ranges,
)
from fusionscope.errors import UnusableInput, quoted

_FIRST = "BufferAssignment:"
_LAST = ("Total bytes used:", "Used values:")  # older compilers append what values are used by
_ALLOCATION = re.compile(r"allocation (\d{1,18}): size (\d{1,18})(.*):")
_PARAMETER = re.compile(r", parameter (\d{1,18}), shape \|[^|]*\| at ShapeIndex \{([\d, ]*)\}")
_OUTPUT = re.compile(r", output shape is \|[^|]*\|")
_VALUE = re.compile(
    r" value: <(?P<id>\d{1,18}) (?P<name>[^ {>]+)(?:\{(?P<index>[\d, ]*)\})?(?: \(phi\))? @\d+>"
    r" \(size=(?P<size>\d{1,18}),offset=(?P<offset>\d{1,18})\): (?P<shape>.*)"
)
_HINT = "it is cut off or another file: dump the module again"


class AllocationKind(StrEnum):
    """What an allocation is for. ``donated`` is a parameter whose memory holds an output."""

    PARAMETER = "parameter"
    DONATED = "donated"
    OUTPUT = "output"
    TEMPORARY = "temporary"
    CONSTANT = "constant"
    THREAD_LOCAL = "thread-local"


@dataclass(frozen=True, slots=True)
class AssignedValue:
    """A value in an allocation; ``size`` and ``offset`` are bytes, ``shape`` has a layout."""

    position: Position
    size: int
    offset: int
    shape: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that the program reserves at once; ``size`` is in bytes.

    ``parameter`` is the number of the entry parameter in it, None for others.
    """

    number: int
    size: int
    kind: AllocationKind
    parameter: int | None
    values: tuple[AssignedValue, ...]


@dataclass(frozen=True, slots=True)
class BufferAssignment:
    """All allocations of a module. ``live_ranges`` are those at the end of the
    same file, where older compilers list them; None if it lists none.
    """

    allocations: tuple[Allocation, ...]
    live_ranges: LiveRanges | None = None

    @property
    def total_bytes(self) -> int:
        return sum(allocation.size for allocation in self.allocations)


def read_buffer_assignment(data: bytes, file: str) -> BufferAssignment:
    """Read the whole file. Raises ``UnusableInput`` if it is another file or is cut off."""
    lines = as_text(data).split("\n")
    if lines[0].strip() != _FIRST:
        raise UnusableInput(
            f"expected {quoted(_FIRST)}, found {quoted(lines[0])}",
            file=file,
            line=1,
            column=1,
            hint=_HINT,
        )
    allocations: list[Allocation] = []
    values: list[AssignedValue] = []
    for number, line in enumerate(lines[1:], 2):
        if match := _VALUE.fullmatch(line):
            if not allocations:
                raise UnusableInput("a value before any allocation", file=file, line=number)
            index = tuple(map(int, match["index"].split(","))) if match["index"] else ()
            position = Position(match["name"], index)
            values.append(
                AssignedValue(position, int(match["size"]), int(match["offset"]), match["shape"])
            )
        elif match := _ALLOCATION.fullmatch(line):
            _close(allocations, values)
            allocations.append(_allocation(int(match[1]), int(match[2]), match[3]))
        elif line.startswith(_LAST):
            break
        elif line.strip():
            raise UnusableInput(
                f"expected an allocation or a value, found {quoted(line)}",
                file=file,
                line=number,
                column=1,
                hint=_HINT,
            )
    _close(allocations, values)
    start = next((place for place, line in enumerate(lines) if begins_live_ranges(line)), None)
    ranges = parse_live_ranges(lines[start:], file, start + 1) if start is not None else None
    return BufferAssignment(tuple(allocations), ranges)


def _close(allocations: list[Allocation], values: list[AssignedValue]) -> None:
    """Give the last allocation its values."""
    if allocations:
        last = allocations[-1]
        allocations[-1] = Allocation(
            last.number, last.size, last.kind, last.parameter, tuple(values)
        )
        values.clear()


def _allocation(number: int, size: int, text: str) -> Allocation:
    """``text`` is what the line says after the size."""
    parameter = _PARAMETER.search(text)
    words = _OUTPUT.sub("", _PARAMETER.sub("", text)).split(", ")
    is_live_out = "maybe-live-out" in words or _OUTPUT.search(text) is not None
    if parameter:
        kind = AllocationKind.DONATED if is_live_out else AllocationKind.PARAMETER
    elif "constant" in words:
        kind = AllocationKind.CONSTANT
    elif "thread-local" in words:
        kind = AllocationKind.THREAD_LOCAL
    elif is_live_out:
        kind = AllocationKind.OUTPUT
    else:
        kind = AllocationKind.TEMPORARY
    return Allocation(number, size, kind, int(parameter[1]) if parameter else None, ())
