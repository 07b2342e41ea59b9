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
    list of such items is one slot. A skeleton shows two items of a list. ``start`` is a pattern for
    the place and the first character of every slot, which most characters fail at once.
    """

    def __init__(
        self, name: str, rule: str, start: str, slots: Sequence[tuple[str, str, bool]]
    ) -> None:
        # Forms that were cached for other slots do not apply to these.
        self.name = f"{name}.{zlib.crc32(repr(slots).encode()):08x}"
        self.rule = rule
        self._holders = {
            2 * kind: (holder, f"{holder},{holder}") for kind, (_, holder, _) in enumerate(slots)
        }
        rests = [rf"(?:\s*,\s*(?:{item}))*" if is_list else "" for item, _, is_list in slots]
        items = [(f"(?:{item})", later) for (item, _, _), later in zip(slots, rests, strict=True)]
        kinds = "|".join(f"({item}({later}))" for item, later in items)
        self._slots = re.compile(f"{start}(?:{kinds})", re.DOTALL)

    def cut(self, text: str) -> tuple[str, list[str]]:
        """Return the skeleton and the slots of ``text``."""
        parts = self._slots.split(text)  # before each slot: its groups, of which one is not None
        size = self._slots.groups + 1
        slots: list[str] = []
        pieces = [parts[0]]
        for start in range(1, len(parts), size):
            kind = start
            while parts[kind] is None:
                kind += 2
            slot = parts[kind]
            slots.append(slot)
            holder = self._holders[kind - start][bool(parts[kind + 1])]
            pieces += [f"-{holder}" if slot[0] == "-" else holder, parts[start + size - 1]]
        return "".join(pieces), slots

    def slots(self, text: str) -> list[str]:
        """Return the slots of ``text``."""
        return ["".join(groups[::2]) for groups in self._slots.findall(text)]

    def pieces(self, skeleton: str) -> Pieces:
        """Return the literal parts and slots of a skeleton."""
        parts = self._slots.split(skeleton)[:: self._slots.groups + 1]
        numbered = [piece for slot, part in enumerate(parts) for piece in (part, slot)]
        return numbered[:-1]

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
