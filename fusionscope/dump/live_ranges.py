"""When the values of a module are alive: ``*_after_optimizations-live-range.txt``, or,
by older compilers, the end of ``*_after_optimizations-buffer-assignment.txt``.

The instructions of the final module in the order in which they run, those of a loop's body once, in
the place before the loop; and for each value the first and the last place at which it is alive.

Source: xla/hlo/utils/hlo_live_range.cc, HloLiveRange::ToString.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusionscope.dump.files import as_text
from fusionscope.errors import UnusableInput, quoted, shorten

_FIRST = re.compile(r"HloLiveRange \(max (\d{1,18})\):")
_SEQUENCE, _RANGES = "  InstructionSequence:", "  BufferLiveRange:"
_PEAK = re.compile(r"  Live ranges at (\d{1,18}) \(peak\):")
_NO_PEAK = "  Peak memory could not be determined"
_STACKS = "  Stack trace breakdown"
_STEP = re.compile(r"    (\d{1,18}):(.+)")
_RANGE = re.compile(r"    ([^{]+)\{([\d, ]*)\}:(\d{1,18})-(\d{1,18})")
_ALIVE = re.compile(r"    ([^{:]+)(?:\{([\d, ]*)\})?: \d{1,18} bytes.*")
_HINT = "it is cut off or another file: dump the module again"


@dataclass(frozen=True, slots=True)
class Position:
    """The part of a result at ``index``: empty for an array, and for a tuple's table."""

    name: str
    index: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}{{{','.join(map(str, self.index))}}}" if self.index else self.name


@dataclass(frozen=True, slots=True)
class LiveRanges:
    """``sequence`` are the instructions in the order in which they run; ``ranges`` the first and
    the last place in it at which a value is alive. The end of the program is one place more.

    ``peak`` is the place where the compiler counts most bytes, and ``at_peak`` the values that it
    lists there; None if it does not know. It counts an element of a tuple as small as a pointer:
    another place may need more.
    """

    sequence: tuple[str, ...]
    ranges: Mapping[Position, tuple[int, int]]
    peak: int | None
    at_peak: tuple[Position, ...]


def read_live_ranges(data: bytes, file: str) -> LiveRanges:
    """Read the whole file. Raises ``UnusableInput`` if it is another file or is cut off."""
    return parse_live_ranges(as_text(data).split("\n"), file)


def begins_live_ranges(line: str) -> bool:
    """Return whether ``line`` is the first of live ranges."""
    return _FIRST.fullmatch(line) is not None


def parse_live_ranges(lines: Sequence[str], file: str, line_number: int = 1) -> LiveRanges:
    """Read the last ``lines`` of a file, the first of which has ``line_number``. Raises
    ``UnusableInput`` if they are something else or are cut off.
    """
    first = _FIRST.fullmatch(lines[0])
    if first is None:
        raise _unexpected("'HloLiveRange (max N):'", lines[0], file, line_number)
    sequence: list[str] = []
    ranges: dict[Position, tuple[int, int]] = {}
    at_peak: list[Position] = []
    peak: int | None = None
    part = ""
    is_whole = False
    for number, line in enumerate(lines[1:], line_number + 1):
        if line in (_SEQUENCE, _RANGES):
            part = line
        elif match := _PEAK.fullmatch(line):
            part, peak, is_whole = "peak", int(match[1]), True
        elif line.startswith((_STACKS, _NO_PEAK)):
            is_whole = True
            break
        elif part == _SEQUENCE and (match := _STEP.fullmatch(line)):
            sequence.append(match[2])
        elif part == _RANGES and (match := _RANGE.fullmatch(line)):
            ranges[_position(match[1], match[2])] = int(match[3]), int(match[4])
        elif part == "peak" and (match := _ALIVE.fullmatch(line)):
            at_peak.append(_position(match[1], match[2] or ""))
        elif line.strip():
            raise _unexpected(
                "an instruction, a live range or a value at the peak", line, file, number
            )
    if not is_whole or len(sequence) != int(first[1]):
        raise UnusableInput(
            f"found {len(sequence)} of {first[1]} instructions, expected all, and the peak",
            file=file,
            hint=_HINT,
        )
    for position, (begin, end) in ranges.items():
        if not begin <= end <= len(sequence):
            raise UnusableInput(
                f"{shorten(str(position))} lives from {begin} to {end}, expected places from 0 to "
                f"{len(sequence)}",
                file=file,
            )
    return LiveRanges(tuple(sequence), ranges, peak, tuple(at_peak))


def _unexpected(expected: str, line: str, file: str, number: int) -> UnusableInput:
    return UnusableInput(
        f"expected {expected}, found {quoted(line)}", file=file, line=number, column=1, hint=_HINT
    )


def _position(name: str, index: str) -> Position:
    return Position(name, tuple(map(int, index.split(","))) if index else ())
