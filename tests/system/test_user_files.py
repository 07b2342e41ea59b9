"""Files that users write: the line of each value is found."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionscope.system.user_files import Place, UserFile, read_json, read_toml

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
values: st.SearchStrategy[Any] = st.recursive(
    st.integers(-9, 9) | st.text("a[]{}=,:", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
)
tables = st.dictionaries(keys, values, max_size=4)


def places(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """All values with their places, but the outermost."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for step, inner in items:
        yield (*place, step), inner
        yield from places(inner, (*place, step))


def read(text: str, name: str) -> tuple[UserFile[dict[str, Any]], list[str]]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_text(text, encoding="utf-8", newline="")
        actual = (read_json if name.endswith("json") else read_toml)(file, dict)
    return actual, text.split("\n")


@settings(deadline=None)
@given(tables)
def test_values_in_json_are_found(content: dict[str, Any]) -> None:
    actual, lines = read(json.dumps(content, indent=1), "a.json")
    assert actual.value == content
    expected = {place for place, _ in places(content)}
    assert {place for place, _ in actual.places()} >= expected
    for place in expected:
        line = lines[(actual.line(*place) or 0) - 1].strip()
        if isinstance(place[-1], str):
            assert line.startswith(f"{json.dumps(place[-1])}: ")


@settings(deadline=None)
@given(tables)
def test_values_in_toml_are_found(content: dict[str, Any]) -> None:
    actual, lines = read(tomli_w.dumps(content), "a.toml")
    assert actual.value == content
    for place, value in places(content):
        number = actual.line(*place)
        assert number is not None
        if not isinstance(value, dict | list) and all(isinstance(step, str) for step in place):
            assert tomllib.loads(lines[number - 1]) == {place[-1]: value}


def test_tables_in_tables_of_a_list_are_found() -> None:
    actual, _ = read("[[a]]\n[a.x]\nn = 1\n[[a.b]]\n\n[[a]]\n[[a.b]]\nn = 2\n[[a.b]]\n", "a.toml")
    assert [actual.line("a", *remaining) for remaining in ((0,), (0, "x", "n"), (0, "b", 0))] == [
        1,
        3,
        4,
    ]
    assert [actual.line("a", 1, *remaining) for remaining in ((), ("b", 0, "n"), ("b", 1))] == [
        6,
        8,
        9,
    ]
    assert actual.line("c") is None
