"""The Lark grammar of HLO text: loaded once, on demand."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from fusionscope.errors import UnusableInput

if TYPE_CHECKING:
    from lark import Lark

START_RULES = ("header", "signature", "footer", "instruction", "attributes", "layout")

# What the user is told where the grammar expects a terminal.
_READABLE = {
    "NAME": "a name",
    "KEY": "an attribute (key=)",
    "INTEGER": "an integer",
    "TYPE": "an element type such as f32[",
    "KEY_COLON": "a parameter (name:)",
    "OPCODE": "an operation and '('",
    "STRING": "a string",
    "COMMA": "','",
    "EQUAL": "'='",
    "LPAR": "'('",
    "RPAR": "')'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LSQB": "'['",
    "RSQB": "']'",
    "ARROW": "'->'",
    "COLON": "':'",
    "TRUE": "true",
    "FALSE": "false",
    "$END": "the end of the line",
}


def grammar_file() -> Path:
    """Where ``hlo.lark`` lies: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "grammars" / "hlo.lark"
    return installed if installed.exists() else package.parent / "grammars" / "hlo.lark"


@functools.cache
def grammar() -> Lark:
    """The LALR parser with every start rule; its tables are cached between runs by Lark."""
    from lark import Lark

    text = grammar_file().read_text(encoding="utf-8")
    options = {"parser": "lalr", "start": list(START_RULES), "maybe_placeholders": False}
    try:
        return Lark(text, cache=True, **options)
    except OSError:  # no writable cache directory
        return Lark(text, **options)


def check(rule: str, text: str) -> None:
    """Raises ``UnusableInput`` with a place within ``text`` unless ``rule`` derives it."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

    try:
        grammar().parse(text, start=rule)
    except UnexpectedInput as error:
        if isinstance(error, UnexpectedToken):
            found = "the end" if error.token.type == "$END" else quoted(str(error.token))
            expected = error.accepts or error.expected
        else:
            assert isinstance(error, UnexpectedCharacters)
            found = quoted(error.char)
            expected = error.allowed or set()
            if error.char in "\"'":
                found, expected = "a quotation mark that nothing closes", {"STRING"}
        at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        raise UnusableInput(
            f"found {found}, expected {_readable(expected)}",
            line=text.count("\n") + 1 if at_end else error.line,
            column=len(text) - (text.rfind("\n") + 1) + 1 if at_end else error.column,
        ) from None


@functools.lru_cache(maxsize=4096)
def fits(rule: str, text: str) -> bool:
    """Whether ``rule`` derives ``text``; for short texts that come again and again."""
    try:
        check(rule, text)
    except UnusableInput:
        return False
    return True


def _readable(terminals: set[str]) -> str:
    names = sorted({_READABLE[name] for name in terminals if name in _READABLE})
    if len(names) > 6:
        return "the rest of a value"
    return " or ".join(names) if names else "something else"


def shorten(text: str, limit: int = 60) -> str:
    """``text`` on one line, without control characters, cut at ``limit`` characters."""
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(character if character.isprintable() else "�" for character in cut)


def quoted(text: str) -> str:
    """``text`` between quotation marks, on one line and cut where it is long."""
    return repr(text if len(text) <= 60 else f"{text[:59]}…")
