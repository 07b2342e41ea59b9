"""Reads protobuf text without a schema.

The records beside the HLO text come from many compiler versions, each with different fields. No
message type is therefore known here: a message is its fields in file order, and every scalar stays
as printed, which also saves the conversion of values that nobody reads. The protobuf library, set
to skip unknown fields, takes six times as long. Grammar:
https://protobuf.dev/reference/protobuf/textformat-spec, the part that the printer writes: no lists
in brackets, no string in several pieces, braces around messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fusionscope.errors import UnusableInput, quoted, shorten

MAXIMUM_DEPTH = 100  # protobuf's own parsers refuse deeper nesting by default

_FIELD = re.compile(
    r"""
    [\s;,]*
    (?: (?P<name> \w+ | \[[^\]\n]*\] ) \s*
        (?: (?: :\s* )? (?P<opening>\{)
          | :\s* (?P<scalar>
                "[^"\\\n]*(?:\\.[^"\\\n]*)*" | '[^'\\\n]*(?:\\.[^'\\\n]*)*' | [\w.+-]+ ) )
      | (?P<closing>\})
      | \#[^\n]*
      | \Z
      | (?P<junk>.) )
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPES = re.compile(
    r"(?P<bytes>(?:\\(?:[0-7]{1,3}|x[0-9a-fA-F]{1,2}))+)|\\(?P<character>.)", re.S
)
_ESCAPED_BYTE = re.compile(r"\\(?:x(?P<hexadecimal>[0-9a-fA-F]+)|(?P<octal>[0-7]+))")
_CONTROL_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its ``fields`` in file order, scalars as printed; ``file`` is for errors.

    A singular field that occurs twice has its last value, as in protobuf. An absent field has
    protobuf's default: an empty string, or zero.
    """

    fields: list[tuple[str, str | Message]]
    file: str

    def messages(self, name: str) -> list[Message]:
        messages = []
        for field, value in self.fields:
            if field == name:
                if isinstance(value, str):
                    raise self._unexpected(name, value, "a message in braces")
                messages.append(value)
        return messages

    def message(self, name: str) -> Message | None:
        messages = self.messages(name)
        return messages[-1] if messages else None

    def scalars(self, name: str) -> list[str]:
        scalars = []
        for field, value in self.fields:
            if field == name:
                if isinstance(value, Message):
                    raise self._unexpected(name, "a message in braces", "a single value")
                scalars.append(value)
        return scalars

    def scalar(self, name: str) -> str | None:
        scalars = self.scalars(name)
        return scalars[-1] if scalars else None

    def string(self, name: str) -> str:
        return unquote(self.scalar(name) or "")

    def strings(self, name: str) -> tuple[str, ...]:
        return tuple(unquote(scalar) for scalar in self.scalars(name))

    def integer(self, name: str) -> int:
        scalar = self.scalar(name) or "0"
        try:
            return int(scalar)
        except ValueError:
            raise self._unexpected(name, scalar, "a whole number") from None

    def number(self, name: str) -> float:
        scalar = self.scalar(name) or "0"
        try:
            return float(scalar)
        except ValueError:
            raise self._unexpected(name, scalar, "a number") from None

    def boolean(self, name: str) -> bool:
        scalar = self.scalar(name) or "false"
        if scalar not in ("true", "false"):
            raise self._unexpected(name, scalar, "true or false")
        return scalar == "true"

    def _unexpected(self, name: str, actual: str, expected: str) -> UnusableInput:
        return UnusableInput(
            f"{name} is {shorten(actual)}, expected {expected}",
            file=self.file,
            hint="dump the module again",
        )


def as_proto_text(data: bytes, file: str) -> str:
    """Decode the content of a file. Raises ``UnusableInput`` if it is not text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnusableInput(
            f"byte {error.start} is not text, expected a protobuf in text form",
            file=file,
            hint="check that this is the file it is named as",
        ) from None


def parse(data: bytes, file: str) -> Message:
    """Return the outermost message of a text proto.

    Raises ``UnusableInput``, with line and column, if ``data`` is not one: other bytes, junk
    between the fields, nesting deeper than 100 messages, or an end inside a message.
    """
    return parse_text(as_proto_text(data, file), file)


def parse_text(text: str, file: str, start: int = 0) -> Message:
    """Return the outermost message like ``parse``, without the fields before ``start``."""
    outermost = Message([], file)
    fields = outermost.fields
    outer: list[tuple[str, list[tuple[str, str | Message]]]] = []
    for match in _FIELD.finditer(text, start):
        name, opening, scalar, closing, junk = match.groups()
        if scalar is not None:
            fields.append((name, scalar))
        elif opening is not None:
            if len(outer) == MAXIMUM_DEPTH:
                problem = f"messages nest deeper than {MAXIMUM_DEPTH}"
                raise _error_at(problem, text, match.start("opening"), file)
            message = Message([], file)
            fields.append((name, message))
            outer.append((name, fields))
            fields = message.fields
        elif closing is not None:
            if not outer:
                problem = "found } where no message is open"
                raise _error_at(problem, text, match.start("closing"), file)
            fields = outer.pop()[1]
        elif junk is not None:
            start = match.start("junk")
            excerpt = text[start : start + 20].split("\n")[0]
            raise _error_at(f"found {quoted(excerpt)}, expected name: value", text, start, file)
    if outer:
        raise UnusableInput(
            f"the file ends inside {outer[-1][0]}, expected }}",
            file=file,
            line=text.count("\n") + 1,
            hint="it looks cut off: dump the module again",
        )
    return outermost


def unquote(scalar: str) -> str:
    """Return the text of a printed string, without quotes and escapes; other scalars unchanged."""
    if scalar[:1] not in ('"', "'"):
        return scalar
    text = scalar[1:-1]
    return _ESCAPES.sub(_unescape, text) if "\\" in text else text


def _unescape(match: re.Match[str]) -> str:
    character = match["character"]
    if character is not None:
        return _CONTROL_CHARACTERS.get(character, character)
    # Adjacent bytes are one or more UTF-8 characters.
    values = (
        int(byte["hexadecimal"], 16) if byte["hexadecimal"] else int(byte["octal"], 8) & 0xFF
        for byte in _ESCAPED_BYTE.finditer(match["bytes"])
    )
    return bytes(values).decode(errors="replace")


def _error_at(problem: str, text: str, position: int, file: str) -> UnusableInput:
    line_start = text.rfind("\n", 0, position) + 1
    return UnusableInput(
        problem,
        file=file,
        line=text.count("\n", 0, position) + 1,
        column=position - line_start + 1,
        hint="expected a protobuf in text form",
    )
