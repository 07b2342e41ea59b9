"""The Lark grammar of HLO text: loaded once, on demand."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
from io import BytesIO
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
    """The LALR parser with every start rule; its tables are kept between runs, see ``_Kept``."""
    import lark

    text = grammar_file().read_text(encoding="utf-8")
    kept = _Kept(repr((text, START_RULES, lark.__version__, sys.version_info)))
    tables = kept.read()
    if tables is not None:
        return lark.Lark.load(BytesIO(tables))
    made = lark.Lark(text, parser="lalr", start=list(START_RULES), maybe_placeholders=False)
    buffer = BytesIO()
    made.save(buffer)
    kept.write(buffer.getvalue())
    return made


class _Kept:
    """Bytes made of ``source``, kept in the user's own cache directory.

    They are unpickled, so nobody else may be able to write them. Files appear whole and hold their
    own digest: one that was damaged is not used. Where nothing can be kept, nothing is.
    """

    def __init__(self, source: str) -> None:
        digest = hashlib.sha256(source.encode()).hexdigest()
        try:
            base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
            self.file: Path | None = Path(base) / "fusionscope" / f"grammar-{digest[:32]}"
        except RuntimeError:  # no home
            self.file = None

    def read(self) -> bytes | None:
        try:
            content = self.file.read_bytes() if self.file else b""
        except OSError:
            return None
        digest, kept = content[:32], content[32:]
        return kept if hashlib.sha256(kept).digest() == digest else None

    def write(self, content: bytes) -> None:
        if self.file is None:
            return
        part = self.file.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.write_bytes(hashlib.sha256(content).digest() + content)
            part.replace(self.file)


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
