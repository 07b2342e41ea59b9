"""Attributes of instructions and modules: kept verbatim, read on demand.

``, key=value, key=value`` is cut before each attribute. Each attribute has a form (see ``forms``),
and so has its value: a kind, such as ``integers``, and the contents of that kind.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fusionscope.errors import UnusableInput, quoted
from fusionscope.hlo.forms import Joints, Pieces, fill
from fusionscope.hlo.grammar import keys
from fusionscope.hlo.text import (
    ARRAY,
    BRACES,
    CLOSING,
    DEPTH,
    NAME,
    STRING,
    cut_at_commas,
    empty_strings,
    strip_comments,
)

_KEY = re.compile(r"\s*[A-Za-z_][\w.\-]*=")
# Digits of a key are not a slot. The lookahead is bounded: time is its length times the digits.
_OF_KEY = r"[\w.\-]{0,100}="
_NUMBERED_KEY = re.compile(f"0{_OF_KEY}")
_INDEX = r"\{[\d, ]*\}"
_ALIAS = rf"{_INDEX}: \(\d+, {_INDEX}(?:, [a-z\-]+)?\)"
_SLOTS = (
    (STRING, '""', False),
    (rf"(?<=backend_config=)(?=\{{\"){BRACES}", '{""}', False),
    (rf"-?\d+(?!{_OF_KEY})", "0", True),
    (rf"%{NAME}", "%n", True),
)
_JOINTS = Joints("attribute", "attribute", r"(?=[\"'{\-\d%])", _SLOTS)
# The header of a module lists shapes and aliases, one for each argument and result.
_HEADER_JOINTS = Joints(
    "header",
    "attribute",
    r"(?=[\"'{\-\d%a-z])",
    (
        _SLOTS[0],
        (_ALIAS, "{}: (0, {})", True),
        (r"(?:true|false)(?:\s*,\s*(?:true|false))+", "true,true", False),
        (rf"(?<!\w){ARRAY}", "f32[]", True),
        *_SLOTS[1:],
    ),
)
_OF_HEADERS = ("entry_computation_layout=", "input_output_alias=")

# Metadata as the compiler prints it: strings without escapes, and numbers.
_METADATA = re.compile(r", metadata=\{((?:[a-z_]{1,40}=(?:\"[^\"\\]*\"|\d{1,20})(?: |(?=\})))*)\}")
_FIELDS = re.compile(r"([a-z_]+)=(\"[^\"]*\"|\d+)")

# Attributes that name computations.
CALLS = keys("CALL_KEY") | keys("CALLS_KEY")
_CALL_KEYS = re.compile(rf"(?:{'|'.join(sorted(CALLS))})=")
# A call after plain attributes, as most fusions and reductions have it.
_PLAIN_CALL = re.compile(
    rf"(?:, [a-z_]+=(?:[\w.\-]+|\{{[\d,]*\}}))*?, (?:calls|to_apply)=%({NAME})(?=, |$)"
)
_LONG = 2000  # XLA prints no number of more than 20 digits.
# None that XLA prints has more than 20 digits.
_LONG_NUMBER = re.compile(r"\d{41}")
_ZEROS = re.compile("00+")
_BETWEEN = re.compile(", (?=[A-Za-z_])")  # attributes, and items of some lists
# What is not in the compiler's own form.
_UNUSUAL = re.compile(r"//|/\*|\d{41}|[\\'\n]")
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)


class _Attribute(NamedTuple):
    """One attribute of a form; its slots are those of the whole text from ``first`` to ``end``."""

    kind: str
    content: Any
    text: Pieces
    first: int
    end: int


class _Attributes(NamedTuple):
    """The form of all attributes of an instruction or module."""

    joints: Joints
    skeletons: dict[str, str]
    by_key: dict[str, _Attribute]
    calls: tuple[str, ...]


class _Read:
    """A text with its form. Its slots are found when first needed."""

    __slots__ = ("_slots", "_texts", "form", "text")

    def __init__(self, form: _Attributes, text: str) -> None:
        self.form = form
        self.text = text
        self._slots: list[str] | None = None
        self._texts: dict[str, str] | None = None

    @property
    def slots(self) -> list[str]:
        if self._slots is None:
            self._slots = self.form.joints.slots(self.text)
        return self._slots

    @property
    def texts(self) -> dict[str, str]:
        if self._texts is None:
            by_key, slots = self.form.by_key, self.slots
            self._texts = {key: fill(attribute.text, slots) for key, attribute in by_key.items()}
        return self._texts

    def values(self) -> dict[str, Any]:
        slots = self.slots
        return {key: _value(attribute, slots) for key, attribute in self.form.by_key.items()}

    def called_names(self) -> tuple[str, ...]:
        if not self.form.calls:
            return ()
        calls = [self.form.by_key[key] for key in self.form.calls]
        slots = self.slots
        return tuple([name for attribute in calls for name in _value(attribute, slots)])


def outlines(texts: Sequence[str]) -> list[str]:
    """Return for each text an outline that all texts of the same form share: strings are emptied,
    and digits become zeros. Outlines are cheaper than skeletons, and there are more of them.
    """
    text = "\n".join(texts)
    if "\\" in text or "'" in text:
        text = "\n".join([empty_strings(a) if "\\" in a or "'" in a else a for a in texts])
    parts = text.split('"')
    lines = with_zeros('""'.join(parts[::2])).split("\n")
    # Not if a line does not close its string.
    return lines if len(parts) % 2 and len(lines) == len(texts) else list(texts)


def _outline(text: str) -> str:
    """Return the same for one text."""
    if "\\" in text or "'" in text or "\n" in text:
        return outlines([text])[0]
    if '"' not in text:
        return with_zeros(text)
    parts = text.split('"')
    return with_zeros('""'.join(parts[::2])) if len(parts) % 2 else text


def with_zeros(text: str) -> str:
    """Return ``text`` with zeros for digits. As bytes, a short text takes a tenth of the time."""
    return text.encode("utf-8", "surrogatepass").translate(_DIGITS).decode("utf-8", "surrogatepass")


def check_attributes(text: str) -> None:
    """Raises ``UnusableInput`` if ``text`` is not ``, key=value, key=value``."""
    _parts(text)


@functools.lru_cache(maxsize=1 << 13)
def plain_keys(outline: str) -> frozenset[str] | None:
    """Return the keys of the attributes of an outline, or None if it is not in the compiler's own
    form, which says nothing about it. Outlines combine few attributes.
    """
    first, *parts = _BETWEEN.split(outline)
    keys = {key for part in parts if (key := _plain_key(part)) is not None}
    return frozenset(keys) if not first and len(keys) == len(parts) else None


@functools.lru_cache(maxsize=1 << 13)
def _plain_key(attribute: str) -> str | None:
    key = attribute.partition("=")[0]
    if len(attribute) > _LONG or "0" in key or _UNUSUAL.search(attribute):
        return None
    if any(attribute.count(opening) != attribute.count(CLOSING[opening]) for opening in CLOSING):
        return None  # a part of a list
    try:
        return key if _JOINTS.form(_skeleton(attribute))[0] == key else None
    except UnusableInput:
        return None


@functools.lru_cache(maxsize=1 << 13)
def _skeleton(attribute: str) -> str:
    return _JOINTS.cut(attribute)[0].strip()


def has_known_words(outline: str) -> bool:
    """Return whether the compiler's parser knows all words of an outline of ``plain_keys``."""
    return all(map(_is_known, _BETWEEN.split(outline)[1:]))


@functools.lru_cache(maxsize=1 << 13)
def _is_known(attribute: str) -> bool:
    try:
        return bool(_JOINTS.form(_skeleton(attribute), "known"))
    except UnusableInput:
        return False


@functools.lru_cache(maxsize=1 << 13)
def unknown_word(text: str) -> str | None:
    """Return the key of the first attribute with a word that the compiler's parser does
    not know.
    """
    before, metadata, after = _parts(text)
    skeletons = {
        key: (part.form.joints, s)
        for part in (before, after)
        for key, s in part.form.skeletons.items()
    }
    if metadata is not None:
        skeletons["metadata"] = _JOINTS, _JOINTS.cut(f"metadata={{{metadata}}}")[0]
    for key, (joints, skeleton) in skeletons.items():
        try:
            joints.form(skeleton, "known")
        except UnusableInput:
            return key
    return None


@functools.lru_cache(maxsize=1 << 13)
def attribute_keys(text: str) -> frozenset[str]:
    """Return the keys of the attributes in ``text``."""
    before, metadata, after = _parts(text)
    keys = before.form.by_key.keys() | after.form.by_key.keys()
    return frozenset(keys if metadata is None else keys | {"metadata"})


def split_attributes(text: str) -> dict[str, str]:
    """Return ``, key=value, key=value`` as a dictionary of verbatim values, without comments."""
    before, metadata, after = _parts(text)
    if metadata is None:
        return before.texts.copy()
    return {**before.texts, "metadata": f"{{{metadata}}}", **after.texts}


def cut_attributes(text: str) -> list[str] | None:
    """Return the text cut before each attribute, or None if that is impossible."""
    first, *parts = cut_at_commas(text) or ["?"]
    if first.strip() or not all(map(_KEY.match, parts)):
        return None
    return [f",{part}" for part in parts]


# Asked many times of each fusion: it must not be full before the largest modules are.
@functools.lru_cache(maxsize=1 << 17)
def called_names(text: str) -> tuple[str, ...]:
    """Return the names of the computations that the attributes in ``text`` call, in the printed
    order.
    """
    key = _CALL_KEYS.search(text)
    if key is None:
        return ()
    call = _PLAIN_CALL.match(text)
    is_plain = call is not None and call.start(1) == key.end() + 1
    if call is not None and is_plain and _CALL_KEYS.search(text, call.end()) is None:
        return (call[1],)
    before, _, after = _parts(text)
    return before.called_names() + after.called_names()


def read_names(value: str) -> tuple[str, ...]:
    """Return ``{%a, %b}`` or ``%a`` as names without the percent sign."""
    return tuple(_NAME.findall(value))


_NAME = re.compile(NAME)


def read_attribute(text: str, key: str) -> Any:
    """Return one of the attributes in ``text`` as data, or None if it is missing.

    Integers, booleans and strings become Python values. Lists of integers and names of computations
    and instructions become tuples, metadata and JSON dictionaries, windows dictionaries of tuples,
    slices and paddings tuples of tuples of integers. Everything else is returned verbatim, without
    comments. Raises ``UnusableInput`` if ``text`` is not HLO.
    """
    before, metadata, after = _parts(text)
    if key == "metadata" and metadata is not None:
        return _plain_metadata(metadata)
    for part in (before, after):
        if (attribute := part.form.by_key.get(key)) is not None:
            return _value(attribute, part.slots)
    return None


def read_attributes(text: str) -> dict[str, Any]:
    """Return all attributes in ``text`` as data, see ``read_attribute``."""
    before, metadata, after = _parts(text)
    if metadata is None:
        return before.values()
    return {**before.values(), "metadata": _plain_metadata(metadata), **after.values()}


def read_value(key: str, value: str) -> Any:
    """Return the value of one attribute as data, see ``read_attribute``."""
    return read_attribute(f", {key}={value}", key)


def read_slice(value: str) -> list[range]:
    """Return ``{[0:8:2], [1:4]}`` as the indices that a slice takes, by dimension."""
    return [range(*cut) for cut in read_value("slice", value)]


def read_metadata(value: str) -> dict[str, str]:
    """Return ``{op_name="a" stack_frame_id=3}`` as a dictionary with unescaped strings."""
    read: dict[str, str] = read_value("metadata", value) if value else {}
    return read


@functools.lru_cache(maxsize=1 << 15)
def _parts(text: str) -> tuple[_Read, str | None, _Read]:
    """Return the attributes before plain metadata, what is between its braces, and the attributes
    after it. Without metadata, few texts are distinct.
    """
    match = _METADATA.search(text)
    if match is not None and "/*" not in text:
        try:
            before, after = _read(text[: match.start()]), _read(text[match.end() :])
        except UnusableInput:  # the metadata is inside of something
            return _read(text), None, _read("")
        old_keys, new_keys = before.form.by_key.keys(), after.form.by_key.keys()
        if (
            old_keys.isdisjoint(new_keys)
            and "metadata" not in old_keys
            and "metadata" not in new_keys
        ):
            return before, match[1], after
    return _read(text), None, _read("")


@functools.lru_cache(maxsize=1 << 15)
def _read(text: str) -> _Read:
    if "/*" in text:
        text = strip_comments(text)
    form = _form_of_outline(_outline(text))
    return _Read(_form(empty_strings(text)) if form is None else form, text)


@functools.lru_cache(maxsize=1 << 13)
def _form_of_outline(outline: str) -> _Attributes | None:
    """Return the form of an outline, or None if it has keys with digits. The number of digits does
    not matter, up to a limit.
    """
    if _NUMBERED_KEY.search(outline):
        return None
    return _form(outline if _LONG_NUMBER.search(outline) else _ZEROS.sub("0", outline))


@functools.lru_cache(maxsize=1 << 13)
def _form(outline: str) -> _Attributes:
    joints = _HEADER_JOINTS if any(key in outline for key in _OF_HEADERS) else _JOINTS
    skeletons = [joints.cut(part)[0].strip() for part in _cut(outline)]
    by_key: dict[str, _Attribute] = {}
    calls = []
    slot = 0
    for skeleton in skeletons:
        key, kind, content, text, is_call, size = _attribute_form(joints, skeleton)
        shifted = [piece if isinstance(piece, str) else piece + slot for piece in text]
        by_key[key] = _Attribute(kind, content, shifted, slot, slot + size)
        if is_call:
            calls.append(key)
        slot += size
    return _Attributes(joints, dict(zip(by_key, skeletons, strict=True)), by_key, tuple(calls))


def _cut(outline: str) -> list[str]:
    """Return the attributes of an outline. Raises ``UnusableInput`` if there are none, or one is
    there twice.
    """
    if plain_keys(outline) is not None:
        return _BETWEEN.split(outline)[1:]
    parts = cut_at_commas(outline)
    if parts is None:
        raise UnusableInput(
            f"a bracket or string is not closed, or brackets nest more than {DEPTH} deep"
        )
    if "/*" in outline:
        raise UnusableInput("found '/*', expected the end of the comment")
    if "//" in outline:
        raise UnusableInput("found '//'")
    if _LONG_NUMBER.search(outline):
        raise UnusableInput("found a number of more than 40 digits")
    first, *parts = parts
    if first.strip() or not all(map(_KEY.match, parts)):
        raise UnusableInput("expected attributes such as ', key=value'")
    keys = [part.partition("=")[0].strip() for part in parts]
    if len(set(keys)) < len(keys):
        key = next(key for key in keys if keys.count(key) > 1)
        raise UnusableInput(f"found {key}= twice, expected it once")
    return parts


@functools.lru_cache(maxsize=1 << 12)
def _attribute_form(joints: Joints, skeleton: str) -> tuple[str, str, Any, Pieces, bool, int]:
    """Return the form of one attribute and the number of its slots."""
    try:
        if joints.slots(skeleton[: skeleton.index("=") + 1]):
            raise UnusableInput("the key is too long")
        key, kind, content, text, is_call = _read_form(joints, skeleton)
    except UnusableInput:
        raise UnusableInput(f"cannot read {quoted(skeleton)}") from None
    return key, kind, content, text, is_call, len(joints.slots(skeleton))


def _read_form(joints: Joints, skeleton: str) -> Any:
    """Return the form of one attribute. Of a long list whose items are not read one by one, the
    grammar reads only the distinct ones.
    """
    if len(skeleton) > _LONG:
        key, _, value = skeleton.partition("=")
        value = value.strip()
        items = cut_at_commas(value[1:-1]) or []
        unlike = dict.fromkeys(items)
        if value[:1] in CLOSING and len(unlike) < len(items):
            short = f"{key}={value[0]}{','.join([*unlike, items[0]])}{value[-1]}"
            key, kind, content, _, is_call = joints.form(short)
            if kind in _OF_TEXT:
                return key, kind, content, joints.pieces(value), is_call
    return joints.form(skeleton)


# Values


def _value(attribute: _Attribute, slots: Sequence[str]) -> Any:
    of_text = _OF_TEXT.get(attribute.kind)
    if of_text is not None:
        return of_text(fill(attribute.text, slots))
    return _OF_SLOTS[attribute.kind](attribute.content, slots[attribute.first :])


def _integers(content: Sequence[int], slots: Sequence[str]) -> tuple[int, ...]:
    return tuple(int(number) for slot in content for number in slots[slot].split(","))


def _names(text: str) -> tuple[str, ...]:
    names = text.strip("{} ")
    return tuple([name.strip().lstrip("%") for name in names.split(",")]) if names else ()


def _metadata(content: dict[str, Any], slots: Sequence[str]) -> dict[str, str]:
    return {
        key: unescape(slots[slot]) if kind == "string" else fill(pieces, slots)
        for key, (kind, slot, pieces) in content.items()
    }


def _plain_metadata(text: str) -> dict[str, str]:
    return {key: value.strip('"') for key, value in _FIELDS.findall(text)}


def _window(content: dict[str, Any], slots: Sequence[str]) -> dict[str, Any]:
    return {
        key: _rows(numbers, slots) if key == "pad" else _integers(numbers, slots)
        for key, numbers in content.items()
    }


def _rows(content: Sequence[Sequence[int]], slots: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    return tuple(_integers(row, slots) for row in content)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# The contents of values: their text, or what their form says about the slots.
_OF_TEXT: dict[str, Callable[[str], Any]] = {"json": _json, "names": _names, "text": str}
_OF_SLOTS: dict[str, Callable[[Any, Sequence[str]], Any]] = {
    "constant": lambda content, _: content,
    "integer": lambda slot, slots: int(slots[slot]),
    "integers": _integers,
    "metadata": _metadata,
    "paddings": _rows,
    "slices": _rows,
    "string": lambda slot, slots: unescape(slots[slot]),
    "window": _window,
}

_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def unescape(string: str) -> str:
    """Return a quoted string without its quotes and C escapes."""
    body = string[1:-1]
    if "\\" not in body:
        return body

    def character(escape: re.Match[str]) -> str:
        octal, hexadecimal, letter = escape.groups()
        if letter is not None:
            return _LETTERS.get(letter, letter)
        return chr(int(octal, 8) & 0xFF if octal else int(hexadecimal, 16))

    return _ESCAPE.sub(character, body)
