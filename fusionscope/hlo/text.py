"""Regular expressions for the joints of HLO text.

Wherever a repetition may end, the next character alone tells whether it goes on. So text that
almost fits fails in linear time, without possessive quantifiers, which CPython before 3.11.5 gets
wrong.
"""

from __future__ import annotations

import re

STRING = r"\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*'"
NAME = r"[A-Za-z_][\w.\-]*"
# A comment that nothing closes goes on to the end of the text.
COMMENT = r"/\*[\s\S]*?(?:\*/|\Z)|//[^\n]*"

_STRINGS = re.compile(rf"({STRING})|[\"'].*", re.DOTALL)
_COMMENTS = re.compile(rf"({STRING}|[\"'].*)|(?<!\s)\s*(?:{COMMENT})\s*", re.DOTALL)
_INDEX = re.compile(r"/\*index=\d+\*/")  # what the compiler writes into long tuples
_JOINTS = re.compile(rf"{STRING}|[()\[\]{{}}\"',]", re.DOTALL)
CLOSING = {"(": ")", "[": "]", "{": "}"}

# How deep brackets may nest in attributes and literals, and how deep tuples may nest in shapes.
DEPTH = 12
TUPLE_DEPTH = 32


def _balanced(opening: str, closing: str, inside: str, depth: int = DEPTH) -> str:
    """A pattern for text between brackets of one kind, nested up to ``depth``."""
    plain = rf"[^{opening}{closing}\"'\\]*"
    pattern = rf"{opening}{plain}(?:(?:{inside}){plain})*{closing}"
    for _ in range(depth - 1):
        pattern = rf"{opening}{plain}(?:(?:{inside}|{pattern}){plain})*{closing}"
    return pattern


BRACES = _balanced(r"\{", r"\}", rf"{STRING}|\\.")
PARENTHESES = _balanced(r"\(", r"\)", rf"{STRING}|\\.")

# A shape, as far as one has to look to find its end.
_TUPLE = _balanced(r"\(", r"\)", "(?!)", TUPLE_DEPTH)
ARRAY = r"[a-z]\w*\s*\[[^\[\]]*\](?:\s*\{\s*[\d:][^{}]*\}|)"
SHAPE = rf"(?:{ARRAY}|b?{_TUPLE})"
# ROOT, name, shape, opcode, what stands in the parentheses, attributes. Every line of a dump is
# matched against this: `(?:x|)` is faster than `(?:x)?`.
INSTRUCTION = (
    rf"(ROOT(?:\s+|(?=%))|(?!ROOT\s))%?({NAME})\s*=\s*(?:({SHAPE})\s*|)([a-z][a-z0-9\-]*)\s*"
    rf"\(([^()\"'\n]*(?:(?=[(\"'])(?:(?:{STRING}|{PARENTHESES})[^()\"'\n]*)*|))\)[ \t]*(,.*|)"
)


def empty_strings(text: str) -> str:
    """``text`` with nothing between quotation marks; one that nothing closes hides the rest."""
    return _STRINGS.sub(lambda found: '""' if found[1] else '"', text)


def strip_comments(text: str) -> str:
    """``text`` with a space for each ``/* */`` and ``//`` comment; strings are left alone."""
    before, quotation_mark, after = text.partition('"')
    text = _INDEX.sub("", before) + quotation_mark + after
    if "/*" not in text and "//" not in text:
        return text
    return _COMMENTS.sub(lambda found: found[1] or (" " if is_closed(found[0]) else found[0]), text)


def is_closed(comment: str) -> bool:
    """Whether a comment ends where it should: one that does not is none."""
    comment = comment.strip()
    return comment.startswith("//") or (comment.endswith("*/") and len(comment) > 3)


def cut_at_commas(text: str, depth: int = DEPTH) -> list[str] | None:
    """The parts of ``text`` between the commas outside of all strings and brackets.

    None where a bracket or string is not closed, or brackets nest more than ``depth`` deep: what is
    not balanced would cost the patterns above time that grows with the square of its length.
    """
    parts: list[str] = []
    start = 0
    expected: list[str] = []
    for found in _JOINTS.finditer(text):
        joint = found[0]
        if joint == ",":
            if not expected:
                parts.append(text[start : found.start()])
                start = found.end()
        elif joint in CLOSING:
            expected.append(CLOSING[joint])
            if len(expected) > depth:
                return None
        elif joint in ")]}":
            if not expected or expected.pop() != joint:
                return None
        elif len(joint) == 1:  # a quotation mark that nothing closes
            return None
    return None if expected else [*parts, text[start:]]
