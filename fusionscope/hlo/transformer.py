"""Turns the grammar's tree of a skeleton into data.

Imported only for new skeletons: importing lark takes longer than reading a small dump.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

from lark import Token, Transformer, Tree, v_args
from lark.exceptions import VisitError
from lark.tree import Meta

from fusionscope.errors import UnusableInput, quoted

# Text with slots in it: literal parts and indices of slots.
Pieces = list[str | int]


class _Value(NamedTuple):
    kind: str
    content: Any
    pieces: Pieces


@v_args(meta=True)
class FormTransformer(Transformer[Token, Any]):
    """Turns the tree of one skeleton into its form: lists, dictionaries, texts, indices
    of slots.

    ``spans`` are the places of the slots in the skeleton. One slot holds a whole list of numbers,
    names or shapes, of which the skeleton shows two: the second of them adds nothing.
    """

    def __init__(self, skeleton: str, spans: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self._skeleton = skeleton
        self._spans = spans
        self._starts = {start: slot for slot, (start, _) in enumerate(spans)}

    def form(self, tree: Tree[Token]) -> Any:
        """Return the form of a tree. Raises ``UnusableInput`` if the grammar wants a number and
        there is none.
        """
        try:
            return self.transform(tree)
        except VisitError as error:
            if isinstance(error.orig_exc, UnusableInput):
                raise error.orig_exc from None
            raise

    def _slot(self, token: Token) -> int | None:
        """Return the slot that begins with ``token``, or None if it belongs to the one before."""
        slot = self._starts.get(token.start_pos or 0)
        if slot is None and not self._is_inside(token):
            raise UnusableInput(f"found {quoted(token)} where no number can be")
        return slot

    def _is_inside(self, token: Token) -> bool:
        place = token.start_pos or 0
        slot = bisect_left(self._spans, (place, 0)) - 1
        return slot >= 0 and place < self._spans[slot][1]

    def _slots(self, tokens: Sequence[Token]) -> list[int]:
        return [slot for token in tokens if (slot := self._slot(token)) is not None]

    def _pieces(self, start: int, end: int) -> Pieces:
        pieces: Pieces = []
        for slot in range(bisect_left(self._spans, (start, 0)), len(self._spans)):
            begin, after = self._spans[slot]
            if after > end:
                break
            pieces += [self._skeleton[start:begin], slot]
            start = after
        pieces.append(self._skeleton[start:end])
        return [piece for piece in pieces if piece != ""]

    def _within(self, meta: Meta) -> Pieces:
        return self._pieces(meta.start_pos, meta.end_pos)

    # Attributes

    def attribute(self, meta: Meta, children: list[Any]) -> list[Any]:
        """Return the key, kind, content, text of the value, and whether it names computations."""
        key, value = children
        text = self._skeleton[key.end_pos : meta.end_pos]
        pieces = self._pieces(meta.end_pos - len(text.lstrip()), meta.end_pos)
        if isinstance(value, Token):
            value = self._word(value, pieces)
        is_call = key.type in ("CALL_KEY", "CALLS_KEY")
        return [str(key)[:-1], value.kind, value.content, pieces, is_call]

    def _word(self, token: Token, pieces: Pieces) -> _Value:
        if token in ("true", "false"):  # a name to the lexer, if names are allowed here
            return _Value("constant", token == "true", pieces)
        kind = {"INTEGER": "integer", "STRING": "string"}.get(token.type)
        if kind is None or len(pieces) != 1 or self._slot(token) is None:
            return _Value("text", None, pieces)
        return _Value(kind, self._slot(token), pieces)

    def known(self, meta: Meta, children: list[Any]) -> bool:
        return True

    def value(self, meta: Meta, children: list[Any]) -> _Value:
        pieces = self._within(meta)
        if len(children) == 1 and isinstance(children[0], Token):
            return self._word(children[0], pieces)
        text = self._skeleton[meta.start_pos : meta.end_pos]
        if text.startswith('{"'):
            return _Value("json", None, pieces)
        if text.replace(" ", "").replace("-", "") in ("{}", "{0}", "{0,0}"):
            slots = [piece for piece in pieces if isinstance(piece, int)]
            return _Value("integers", slots, pieces)
        return _Value("text", None, pieces)

    def item(self, meta: Meta, children: list[Any]) -> Any:
        return children[0] if children else None

    def integers(self, meta: Meta, children: list[Token]) -> _Value:
        return _Value("integers", self._slots(children), [])

    def name(self, meta: Meta, children: list[Token]) -> _Value:
        return _Value("names", None, [])

    names = name

    def metadata(self, meta: Meta, children: list[Any]) -> _Value:
        fields: dict[str, list[Any]] = {}
        for child in children:
            if isinstance(child, Token):
                key = str(child)[:-1]
            elif child.kind == "metadata":
                fields.update(child.content)
            else:
                is_string = child.kind == "string"
                fields[key] = ["string" if is_string else "text", child.content, child.pieces]
        return _Value("metadata", fields, [])

    def window(self, meta: Meta, children: list[Any]) -> _Value:
        return _Value("window", dict(children), [])

    def window_field(self, meta: Meta, children: list[Any]) -> tuple[str, list[Any]]:
        key, *numbers = children
        if key.type == "PAD":
            return str(key)[:-1], numbers
        return str(key)[:-1], self._slots(numbers)

    def paddings(self, meta: Meta, children: list[list[int]]) -> _Value:
        return _Value("paddings", children, [])

    def padding(self, meta: Meta, children: list[Token]) -> list[int]:
        return self._slots(children)

    pad = padding

    def slices(self, meta: Meta, children: list[list[int]]) -> _Value:
        return _Value("slices", children, [])

    def slice(self, meta: Meta, children: list[Token]) -> list[int]:
        return self._slots(children)

    def shapes(self, meta: Meta, children: list[Any]) -> _Value:
        return _Value("text", None, [])

    program = shapes

    # Signatures, shapes and layouts

    def signature(self, meta: Meta, children: list[Any]) -> bool:
        return True

    def shape(self, meta: Meta, children: list[Any]) -> list[Any] | None:
        """Return ``[kind, …]``: an array, a list of arrays in one slot, a tuple or a buffer."""
        if children and isinstance(children[0], Token):
            kind, *parts = children
            if kind.start_pos in self._starts:
                return ["arrays", self._starts[kind.start_pos]]
            if self._is_inside(kind):
                return None
            layout = parts.pop() if parts and isinstance(parts[-1], dict) else None
            sizes = [part for part in parts if part is not None]
            return ["array", str(kind), sizes, layout]
        is_tuple = self._skeleton[meta.start_pos] == "("
        elements = [child for child in children if child is not None]
        return ["tuple" if is_tuple else "buffer", elements]

    def dimension(self, meta: Meta, children: list[Token]) -> list[Any] | None:
        """Return a slot of sizes (None for ``?``), and whether the first of them is a bound."""
        if not children:
            return [None, True]
        slot = self._slot(children[-1])
        return None if slot is None else [slot, len(children) > 1]

    def layout(self, meta: Meta, children: list[Any]) -> dict[str, Any]:
        order = self._slots([child for child in children[1:] if isinstance(child, Token)])
        text = self._skeleton[meta.start_pos : meta.end_pos]
        colon = text.find(":")
        properties = [] if colon < 0 else self._pieces(meta.start_pos + colon + 1, meta.end_pos - 1)
        typed = {child[0]: child[1] for child in children if isinstance(child, list)}
        return {"order": order, "properties": properties, **typed}

    def property(self, meta: Meta, children: list[Any]) -> list[Any]:
        """Return its letter, and the slots of its numbers or the sizes of its tiles."""
        letter, *content = children
        if letter.type == "TILES":
            return ["T", content]
        numbers = [
            token for token in content if isinstance(token, Token) and token.type == "INTEGER"
        ]
        return [str(letter), self._slots(numbers)]

    def tile(self, meta: Meta, children: list[int | str | None]) -> list[int | str]:
        return [size for size in children if size is not None]

    def tile_size(self, meta: Meta, children: list[Token]) -> int | str | None:
        return self._slot(children[0]) if children else "*"
