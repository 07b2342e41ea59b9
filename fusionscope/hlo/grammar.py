"""The Lark grammar of HLO text: loaded once, on demand."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusionscope.errors import UnusableInput, quoted
from fusionscope.system.files import make_directory, read_own_file, write_file

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
    "LAYOUT": "a layout",
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
    """The LALR parser with every start rule; its tables are kept between runs, as data."""
    import lark

    text = grammar_file().read_text(encoding="utf-8")
    source = repr((text, START_RULES, lark.__version__, sys.version_info))
    kept = _kept_in(hashlib.sha256(source.encode()).hexdigest())
    tables = _read_tables(kept)
    if tables is not None:
        return lark.Lark.load(tables)
    made = lark.Lark(text, parser="lalr", start=list(START_RULES), maybe_placeholders=False)
    _write_tables(made, kept)
    return made


def _kept_in(digest: str) -> Path | None:
    """A file in the user's own cache directory; None for a user without one."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(base) / "fusionscope" / f"grammar-{digest[:32]}.json"


def _read_tables(kept: Path | None) -> dict[str, Any] | None:
    """None where there are none, or they are damaged, or somebody else could have written them."""
    try:
        content = read_own_file(kept) if kept is not None else b""
        digest, tables = content[:64], content[64:]
        if hashlib.sha256(tables).hexdigest().encode() != digest:
            return None
        read: dict[str, Any] = json.loads(tables, object_hook=_with_numbers)
    except (UnusableInput, ValueError):
        return None
    return read


def _write_tables(made: Lark, kept: Path | None) -> None:
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    if kept is None:
        return
    data, memo = made.memo_serialize([TerminalDef, Rule])
    tables = json.dumps({"data": data, "memo": memo}).encode()
    with contextlib.suppress(UnusableInput):
        make_directory(kept.parent)
        write_file(kept, hashlib.sha256(tables).hexdigest().encode() + tables, mode=0o600)


def _with_numbers(table: dict[str, Any]) -> dict[Any, Any]:
    """JSON has texts as keys alone; no key of the tables is a text of digits."""
    return {int(key) if key.isdecimal() else key: value for key, value in table.items()}


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
