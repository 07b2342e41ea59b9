"""Skeletons and forms: the grammar reads many texts by reading few.

A text is cut at its joints. Its names, numbers and strings are its *slots*; the rest is its
*skeleton*. Only few skeletons occur, and the grammar reads each of them once. The meaning of its
tree is the *form*: plain data, in which indices of slots stand for their texts. A form filled with
the slots of a text gives the meaning of that text. A text that the grammar rejects has no form, and
is not read.

Forms are cached between runs, so most runs do not load the grammar at all.
"""

from __future__ import annotations

import atexit
import functools
import json
import re
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from fusionscope.errors import UnusableInput
from fusionscope.hlo.grammar import derive, grammar_text
from fusionscope.hlo.text import TUPLE_DEPTH, cut_at_commas
from fusionscope.system.kept import keep, read_kept

# Literal parts of a text and indices of slots.
Pieces = Sequence[str | int]

# The sources that determine forms, beside the grammar.
_SOURCES = ("forms.py", "transformer.py")
_MOST_KEPT = 1000
_LONGEST_KEPT = 1000  # characters of a skeleton


class Joints:
    """The places at which texts derived from ``rule`` are cut.

    ``slots`` are the kinds of slots: a pattern, its placeholder in a skeleton, and whether a whole
    list of such items is one slot. A skeleton shows two items of a list.
    """

    def __init__(self, name: str, rule: str, slots: Sequence[tuple[str, str, bool]]) -> None:
        # Forms that were cached for other slots do not apply to these.
        self.name = f"{name}.{zlib.crc32(repr(slots).encode()):08x}"
        self.rule = rule
        self._holders = {
            2 * kind + 1: (holder, f"{holder},{holder}")
            for kind, (_, holder, _) in enumerate(slots)
        }
        rests = [rf"(?:\s*,\s*(?:{item}))*" if is_list else "" for item, _, is_list in slots]
        items = [(f"(?:{item})", later) for (item, _, _), later in zip(slots, rests, strict=True)]
        self._slots = re.compile("|".join(f"({item}({later}))" for item, later in items), re.DOTALL)

    def cut(self, text: str) -> tuple[str, list[str]]:
        """Return the skeleton and the slots of ``text``."""
        slots: list[str] = []

        def hold(match: re.Match[str]) -> str:
            slot, kind = match[0], match.lastindex or 1
            slots.append(slot)
            holder = self._holders[kind][bool(match[kind + 1])]
            return f"-{holder}" if slot[0] == "-" else holder

        return self._slots.sub(hold, text), slots

    def slots(self, text: str, most: int | None = None) -> list[str]:
        """Return the slots of ``text``, or the first ``most`` of them."""
        return [match[0] for match in islice(self._slots.finditer(text), most)]

    def pieces(self, skeleton: str) -> Pieces:
        """Return the literal parts and slots of a skeleton."""
        pieces: list[str | int] = []
        start = 0
        for slot, match in enumerate(self._slots.finditer(skeleton)):
            pieces += [skeleton[start : match.start()], slot]
            start = match.end()
        return [*pieces, skeleton[start:]]

    def form(self, skeleton: str, rule: str | None = None) -> Any:
        """Return what the grammar makes of ``skeleton``, as plain data (see
        ``transformer``).

        Raises ``UnusableInput`` with a place in the skeleton if the grammar rejects it.
        """
        return _form(self, rule or self.rule, skeleton)

    def read(self, rule: str, skeleton: str) -> Any:
        """Return the same, always from the grammar."""
        if cut_at_commas(skeleton, TUPLE_DEPTH) is None:  # trees are walked recursively
            raise UnusableInput(f"brackets are not closed, or nest more than {TUPLE_DEPTH} deep")
        tree = derive(rule, skeleton)
        from fusionscope.hlo.transformer import FormTransformer

        spans = [match.span() for match in self._slots.finditer(skeleton)]
        return FormTransformer(skeleton, spans).form(tree)


def fill(pieces: Pieces, slots: Sequence[str]) -> str:
    """Return the text of ``pieces`` with these slots."""
    return "".join([piece if isinstance(piece, str) else slots[piece] for piece in pieces])


@functools.lru_cache(maxsize=4096)
def _form(joints: Joints, rule: str, skeleton: str) -> Any:
    cache = _kept()
    key = f"{joints.name} {rule} {skeleton}"
    form = cache.forms.get(key)
    if form is None:
        form = joints.read(rule, skeleton)
        if form is None:
            raise UnusableInput(f"cannot read {skeleton}")
        cache.is_complete = False
    if len(key) < _LONGEST_KEPT and len(cache.used) < _MOST_KEPT:
        cache.used[key] = form
    return form


class _Kept:
    """Forms of earlier runs, and those that this run uses."""

    def __init__(self, forms: dict[str, Any], source: str) -> None:
        self.forms = forms
        self.source = source
        self.used: dict[str, Any] = {}
        self.is_complete = True

    def write(self) -> None:
        if not self.is_complete:
            forms = [*{**self.used, **self.forms}.items()][:_MOST_KEPT]
            keep("forms", self.source, json.dumps(dict(forms)).encode())


@functools.cache
def _kept() -> _Kept:
    source = grammar_text() + "".join(
        Path(__file__).with_name(name).read_text(encoding="utf-8") for name in _SOURCES
    )
    try:
        forms = json.loads(read_kept("forms", source) or b"{}")
    except ValueError:
        forms = {}
    cache = _Kept(forms, source)
    atexit.register(cache.write)
    return cache
