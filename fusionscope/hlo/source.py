"""The place in the user's program that an instruction comes from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fusionscope.hlo.attributes import unescape
from fusionscope.hlo.source_location import SourceLocation
from fusionscope.hlo.text import STRING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBER = r"\d{1,9}(?!\d)"
_RECORD = rf"\{{\s*(?:\w+=\s*-?{_NUMBER}\s*)*\}}"
_STRINGS = re.compile(rf"({_NUMBER})\s*({STRING})", re.DOTALL)
_RECORDS = re.compile(rf"({_NUMBER})\s*({_RECORD})")
_FIELDS = re.compile(rf"\b([a-z_]+)=\s*(-?{_NUMBER})")
_TABLES = re.compile(
    r"(?:(?:FileNames|FunctionNames|FileLocations|StackFrames)\b\s*"
    rf"(?:{_NUMBER}\s*(?:{STRING}|{_RECORD})\s*)*)+",
    re.DOTALL,
)
_COMPUTATION = re.compile(r"\s*\n(?=%|ENTRY)")
_SECTION = re.compile(r"^(FileNames|FunctionNames|FileLocations|StackFrames)\b", re.MULTILINE)

_MAKES_ALL = "tensorflow/python/framework/ops.py"


class StackFrames:
    """The four tables between the header of a module and its first computation.

    They are read on demand. ``text`` is kept verbatim for the printer.
    """

    __slots__ = ("_frames", "_stacks", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._frames: dict[int, tuple[SourceLocation, int]] | None = None
        self._stacks: dict[int, tuple[SourceLocation, ...]] = {}

    @staticmethod
    def end(text: str, position: int) -> int:
        """Return the end of the tables that begin at ``position`` (the first text that is not a
        row).
        """
        match = _TABLES.match(text, position)
        return match.end() if match else position

    def end_here(self, text: str, position: int) -> int | None:
        """Return the same if ``text`` has exactly these tables at ``position``, otherwise None."""
        if not text.startswith(self.text, position):
            return None
        match = _COMPUTATION.match(text, position + len(self.text))
        return match.end() if match else None

    def stack(self, frame: int) -> tuple[SourceLocation, ...]:
        """Return the call stack of one frame id, innermost first; empty if the id is unknown."""
        stack = self._stacks.get(frame)
        if stack is None:
            stack = self._stacks[frame] = self._follow(frame)
        return stack

    def locations(self) -> frozenset[SourceLocation]:
        """Return the locations of all frames."""
        if self._frames is None:
            self._frames = self._read()
        return frozenset(location for location, _ in self._frames.values())

    def _follow(self, frame: int) -> tuple[SourceLocation, ...]:
        if self._frames is None:
            self._frames = self._read()
        stack: list[SourceLocation] = []
        visited: set[int] = set()
        while frame in self._frames and frame not in visited:
            visited.add(frame)
            location, frame = self._frames[frame]
            stack.append(location)
        return tuple(stack)

    def _read(self) -> dict[int, tuple[SourceLocation, int]]:
        parts = _SECTION.split(self.text)
        sections = dict(zip(parts[1::2], parts[2::2], strict=True))
        files, functions = (
            {
                int(number): unescape(name)
                for number, name in _STRINGS.findall(sections.get(section, ""))
            }
            for section in ("FileNames", "FunctionNames")
        )
        locations, frames = (
            {
                int(number): {key: int(value) for key, value in _FIELDS.findall(fields)}
                for number, fields in _RECORDS.findall(sections.get(section, ""))
            }
            for section in ("FileLocations", "StackFrames")
        )
        read = {}
        for number, frame in frames.items():
            place = locations.get(frame.get("file_location_id", 0))
            file = files.get(place.get("file_name_id", 0)) if place else None
            if place is not None and file is not None:
                location = SourceLocation(
                    file,
                    place.get("line", 0),
                    functions.get(place.get("function_name_id", 0)),
                    place.get("column"),
                )
                # XLA prints the number of the parent plus one (hlo_module.cc, hlo_parser.cc).
                read[number] = (location, frame.get("parent_frame_id", 1) - 1)
        return read


def source_stack(
    metadata: Mapping[str, str], frames: StackFrames | None
) -> tuple[SourceLocation, ...]:
    """Return the stack that an instruction's metadata names, innermost first. The line that makes
    every operation of TensorFlow is none.
    """
    number = metadata.get("stack_frame_id", "")
    if frames is not None and number.isdecimal():
        return frames.stack(int(number))
    file = metadata.get("source_file")
    if not file or file.endswith(_MAKES_ALL):
        return ()
    line, column = metadata.get("source_line", ""), metadata.get("source_column", "")
    return (
        SourceLocation(
            file,
            int(line) if line.isdecimal() else 0,
            column=int(column) if column.isdecimal() else None,
        ),
    )
