"""Regular expressions for the joints of HLO text."""

from __future__ import annotations

import re

STRING = r'"(?:[^"\\]|\\.)*+"' + r"|'(?:[^'\\]|\\.)*+'"
NAME = r"[A-Za-z_][\w.\-]*+"
COMMENTS = re.compile(rf"({STRING})|/\*.*?\*/|//[^\n]*", re.DOTALL)

_DEPTH = 12


def balanced(opening: str, closing: str) -> str:
    """A pattern for text between brackets of one kind, nested up to 12 deep, minding strings."""
    plain = rf'(?:[^{opening}{closing}"\'\\]++|{STRING}|\\.)'
    pattern = rf"{opening}{plain}*+{closing}"
    for _ in range(_DEPTH):
        pattern = rf"{opening}(?:{plain}|{pattern})*+{closing}"
    return pattern


BRACES = balanced(r"\{", r"\}")
PARENTHESES = balanced(r"\(", r"\)")
BRACKETS = balanced(r"\[", r"\]")


def strip_comments(text: str) -> str:
    """``text`` without ``/* */`` and ``//`` comments; strings are left alone."""
    return COMMENTS.sub(lambda found: found[1] or " ", text)
