"""Regular expressions for the joints of HLO text.

Wherever a repetition may end, the next character alone determines whether it continues. Text that
almost matches therefore fails in linear time, without possessive quantifiers, which CPython before
3.11.5 gets wrong.
"""

from __future__ import annotations

import re

STRING = r"\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*'"
NAME = r"[A-Za-z_][\w.\-]*"
# An unclosed comment extends to the end of the text.
COMMENT = r"/\*[\s\S]*?(?:\*/|\Z)|//[^\n]*"

_STRINGS = re.compile(rf"({STRING})|[\"'].*", re.DOTALL)
_COMMENTS = re.compile(rf"({STRING}|[\"'].*)|(?<!\s)\s*(?:{COMMENT})\s*", re.DOTALL)
_INDEX = re.compile(r"/\*index=\d+\*/")  # the compiler's comments in long tuples
# Most brackets are around numbers alone, and are passed over at once. As each alternative begins
# with a character, the search for one is fast.
_JOINTS = re.compile(rf"{STRING}|\[[\d,]*\]|\{{[\d,]*\}}|\(|\)|\[|\]|\{{|\}}|\"|'|,", re.DOTALL)
CLOSING = {"(": ")", "[": "]", "{": "}"}

# The maximum nesting of brackets in attributes and literals, and of tuples in shapes.
DEPTH = 12
TUPLE_DEPTH = 32


def _balanced(opening: str, closing: str, inside: str, depth: int = DEPTH) -> str:
    """Return a pattern for text between brackets of one kind, nested up to ``depth``."""
    plain = rf"[^{opening}{closing}\"'\\]*"
    pattern = rf"{opening}{plain}(?:(?:{inside}){plain})*{closing}"
    for _ in range(depth - 1):
        pattern = rf"{opening}{plain}(?:(?:{inside}|{pattern}){plain})*{closing}"
    return pattern


BRACES = _balanced(r"\{", r"\}", rf"{STRING}|\\.")
ARRAY = r"[a-z]\w*\s*\[[^\[\]]*\](?:\s*\{\s*[\d:][^{}]*\}|)"


def _shape(depth: int) -> str:
    """Return a pattern for a shape, only as exactly as needed to find its end."""
    tuples = _balanced(r"\(", r"\)", "(?!)", depth)
    return rf"(?:{ARRAY}|b?{tuples})"


def _instruction(shape: str, depth: int) -> str:
    """Return a pattern for ROOT, name, shape, opcode, the text in the parentheses, attributes.

    Every line of a dump is matched against this: `(?:x|)` is faster than `(?:x)?`.
    """
    parentheses = _balanced(r"\(", r"\)", rf"{STRING}|\\.", depth)
    quoted = rf"(?=[(\"'])(?:(?:{STRING}|{parentheses})[^()\"'\n]*)*"
    return (
        rf"(ROOT(?:\s+|(?=%))|(?!ROOT\s))%?({NAME})\s*=\s*(?:({shape})\s*|)([a-z][a-z0-9\-]*)\s*"
        rf"\(([^()\"'\n]*(?:{quoted}|))\)[ \t]*(,.*|)"
    )


SHAPE = _shape(TUPLE_DEPTH)
INSTRUCTION = _instruction(SHAPE, DEPTH)
# What nests no deeper, as almost all instructions do: the whole pattern takes long to compile.
SHALLOW_INSTRUCTION = _instruction(_shape(3), 2)


def empty_strings(text: str) -> str:
    """Return ``text`` with empty strings. An unclosed string hides the rest."""
    return _STRINGS.sub(lambda string: '""' if string[1] else '"', text)


def strip_comments(text: str) -> str:
    """Return ``text`` with a space for each ``/* */`` and ``//`` comment outside of strings."""
    before, quotation_mark, after = text.partition('"')
    text = _INDEX.sub("", before) + quotation_mark + after
    if "/*" not in text and "//" not in text:
        return text
    return _COMMENTS.sub(
        lambda comment: comment[1] or (" " if is_closed(comment[0]) else comment[0]), text
    )


def is_closed(comment: str) -> bool:
    """Return whether a comment is closed. Otherwise it is not a comment."""
    comment = comment.strip()
    return comment.startswith("//") or (comment.endswith("*/") and len(comment) > 3)


def cut_at_commas(text: str, depth: int = DEPTH) -> list[str] | None:
    """Return the parts of ``text`` between the commas outside of all strings and
    brackets.

    Return None if a bracket or string is not closed, or brackets nest deeper than ``depth``: on
    unbalanced text, the patterns above would take time quadratic in its length.
    """
    parts: list[str] = []
    start = 0
    expected: list[str] = []
    for match in _JOINTS.finditer(text):
        joint = match[0]
        if joint == ",":
            if not expected:
                parts.append(text[start : match.start()])
                start = match.end()
        elif joint in CLOSING:
            expected.append(CLOSING[joint])
            if len(expected) > depth:
                return None
        elif joint in ")]}":
            if not expected or expected.pop() != joint:
                return None
        elif len(joint) == 1 or (joint[0] in CLOSING and len(expected) == depth):
            return None  # a quotation mark that nothing closes, or brackets that nest too deep
    return None if expected else [*parts, text[start:]]
