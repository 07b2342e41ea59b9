"""The Lark grammar of HLO text: loaded once, on demand."""

from __future__ import annotations

import functools
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusionscope.errors import UnusableInput, quoted
from fusionscope.system.kept import keep, read_kept

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

START_RULES = (
    "header",
    "opening",
    "footer",
    "instruction",
    "attributes",
    "attribute",
    "known",
    "signature",
    "shape",
    "layout",
)

# How messages name the terminals that the grammar expects.
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
    "NUMBER": "a number",
    "_TO": "'_' as in 1_1",
    "_BY": "'x' as in 3x3",
    "SIZES": "a field of a window (size=)",
    "PAD": "a field of a window (size=)",
    "ALGORITHM": "the name of an algorithm (dot_… or rng_…)",
    "API_VERSION": "a version of the custom-call API",
    "LABELS": "labels such as b01f_01io->b01f",
    "DIRECTION": "EQ, NE, GE, GT, LE or LT",
    "DISTRIBUTION": "rng_uniform or rng_normal",
    "FFT_TYPE": "FFT, IFFT, RFFT or IRFFT",
    "ALIASING": "may-alias or must-alias",
    "KIND": "kLoop, kInput, kOutput or kCustom",
    "PRECISION": "default, highest, high or packed_nibble",
    "MODE_KEY": "mode=",
    "TOLERANCE_KEY": "tolerance=",
    "MODE": "default or highest",
    "MESH": "mesh[",
    "TRANSPOSE": "NO_TRANSPOSE, TRANSPOSE or ADJOINT",
    "ORDER": "FLOAT, TOTALORDER, SIGNED or UNSIGNED",
    "TRUE": "true",
    "FALSE": "false",
    "$END": "the end of the line",
}


def grammar_file() -> Path:
    """Return the path of ``hlo.lark``: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "grammars" / "hlo.lark"
    return installed if installed.exists() else package.parent / "grammars" / "hlo.lark"


def grammar_text() -> str:
    return grammar_file().read_text(encoding="utf-8")


@functools.cache
def grammar() -> Lark:
    """Return the LALR parser with every start rule. Its tables are cached between runs, as data."""
    import lark

    text = grammar_text()
    source = repr((text, START_RULES, lark.__version__, sys.version_info))
    tables = _read_tables(source)
    if tables is not None:
        return lark.Lark.load(tables)
    parser = lark.Lark(
        text,
        parser="lalr",
        start=list(START_RULES),
        maybe_placeholders=False,
        propagate_positions=True,
    )
    _keep_tables(parser, source)
    return parser


def keys(terminal: str) -> frozenset[str]:
    """Return the keys of attributes that a terminal of the grammar lists."""
    pattern = rf"^{terminal}[.\d]*: /(?:\(\?:)?([^)/]+?)\)?=/$"
    match = re.search(pattern, grammar_text(), re.MULTILINE)
    return frozenset(match[1].split("|") if match else ())


def _read_tables(source: str) -> dict[str, Any] | None:
    try:
        tables: dict[str, Any] = json.loads(
            read_kept("grammar", source) or b"", object_hook=_with_numbers
        )
    except ValueError:
        return None
    return tables


def _keep_tables(parser: Lark, source: str) -> None:
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    data, memo = parser.memo_serialize([TerminalDef, Rule])
    keep("grammar", source, json.dumps({"data": data, "memo": memo}).encode())


def _with_numbers(table: dict[str, Any]) -> dict[Any, Any]:
    """Undo that JSON has only strings as keys. No other key of the tables consists of digits."""
    return {int(key) if key.isdecimal() else key: value for key, value in table.items()}


def derive(rule: str, text: str) -> Tree[Token]:
    """Return the tree of ``text``. Raises ``UnusableInput`` with a place in it if ``rule`` does not
    derive it.
    """
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

    try:
        return grammar().parse(text, start=rule)
    except UnexpectedInput as error:
        if isinstance(error, UnexpectedToken):
            token = "the end" if error.token.type == "$END" else quoted(str(error.token))
            expected = error.accepts or error.expected
        else:
            assert isinstance(error, UnexpectedCharacters)
            token = quoted(error.char)
            expected = error.allowed or set()
            if error.char in "\"'":
                token, expected = "a quotation mark that nothing closes", {"STRING"}
        at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        raise UnusableInput(
            f"found {token}, expected {_readable(expected)}",
            line=text.count("\n") + 1 if at_end else error.line,
            column=len(text) - (text.rfind("\n") + 1) + 1 if at_end else error.column,
        ) from None


def _readable(terminals: set[str]) -> str:
    names = sorted({_READABLE[name] for name in terminals if name in _READABLE})
    if len(names) > 6:
        return "the rest of a value"
    return " or ".join(names) if names else "something else"
