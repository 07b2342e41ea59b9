"""What is written is what is read, whatever the numbers, names and strings are."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionscope.errors import UnusableInput
from fusionscope.hlo import Layout, Shape
from fusionscope.hlo.attributes import (
    _HEADER_JOINTS,
    _JOINTS,
    called_names,
    outlines,
    plain_keys,
    read_attributes,
    split_attributes,
)
from fusionscope.hlo.shape import ShapeTable
from fusionscope.hlo.text import DEPTH, cut_at_commas
from fusionscope.hlo.window import WindowDimension, read_window

SPACES = st.sampled_from(["", " "])
NUMBERS = st.integers(1 - 10**18, 10**18 - 1)
SIZES = st.integers(0, 10**17)
NAMES = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_.\-]{0,9}\Z")
# Every character that could be taken for a joint, and some that are none.
TEXTS = st.text(string.ascii_letters[:4] + string.digits[:3] + " {}[](),=:%#/*<>'-.", max_size=12)


def listed(items: list[str], brackets: str = "{}", comma: str = ", ") -> str:
    return brackets[0] + comma.join(items) + brackets[1]


def with_value(values: st.SearchStrategy[Any], write: Any) -> st.SearchStrategy[tuple[str, Any]]:
    return values.map(lambda value: (write(value), value))


NAME_LISTS = st.lists(NAMES, max_size=4).map(tuple)
CUTS = st.lists(st.tuples(SIZES, SIZES) | st.tuples(SIZES, SIZES, SIZES), max_size=3).map(tuple)
PADDINGS = st.lists(
    st.tuples(NUMBERS, NUMBERS) | st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=3
).map(tuple)
# For some keys, what is written and what it means.
VALUES = {
    "dimensions": with_value(
        st.lists(NUMBERS, max_size=4).map(tuple), lambda value: listed([*map(str, value)])
    ),
    "index": with_value(NUMBERS, str),
    "is_stable": with_value(st.booleans(), lambda value: str(value).lower()),
    "calls": with_value(NAMES.map(lambda name: (name,)), lambda value: f"%{value[0]}"),
    "body": with_value(NAMES.map(lambda name: (name,)), lambda value: value[0]),
    "branch_computations": with_value(
        NAME_LISTS, lambda value: listed([f"%{name}" for name in value])
    ),
    "control-predecessors": with_value(NAME_LISTS, lambda value: listed([*value], comma=",")),
    "custom_call_target": with_value(TEXTS, lambda value: f'"{value}"'),
    "metadata": with_value(
        st.dictionaries(NAMES.map(lambda name: name.translate({45: None, 46: None})), TEXTS),
        lambda value: listed([f'{key}="{text}"' for key, text in value.items()], comma=" "),
    ),
    "backend_config": with_value(
        st.dictionaries(TEXTS, TEXTS | NUMBERS | st.lists(st.booleans()), min_size=1), json.dumps
    ),
    "slice": with_value(
        CUTS, lambda value: listed([listed([*map(str, cut)], "[]", ":") for cut in value])
    ),
    "padding": with_value(
        PADDINGS, lambda value: "x".join("_".join(map(str, padding)) for padding in value)
    ),
    "unknown": st.sampled_from(
        [
            "a",
            "{a1=2, a2=1}",
            "b01f_01io->b01f",
            "{{0,1},{2,3}}",
            "[2,4]<=[4,2]T(1,0)",
            "{a={1}, b=(2)}",
            "-inf",
        ]
    ).map(lambda value: (value, value)),
}
VALUES["key1"] = VALUES["key2"] = VALUES["index"]
ATTRIBUTES = st.fixed_dictionaries({}, optional=VALUES)


@pytest.mark.slow
@settings(deadline=None)
@given(ATTRIBUTES, SPACES)
def test_attributes_mean_what_is_written(output: dict[str, tuple[str, Any]], space: str) -> None:
    text = "".join(f",{space}{key}={value}" for key, (value, _) in output.items())
    assert split_attributes(text) == {key: value for key, (value, _) in output.items()}
    assert read_attributes(text) == {key: value for key, (_, value) in output.items()}
    calls = [value for key, (_, value) in output.items() if key in ("calls", "body")]
    calls += [value for key, (_, value) in output.items() if key == "branch_computations"]
    assert sorted(called_names(text)) == sorted(name for names in calls for name in names)


@settings(deadline=None)
@given(ATTRIBUTES)
def test_a_skeleton_is_its_own_skeleton(output: dict[str, tuple[str, Any]]) -> None:
    """So the slots of a skeleton are where its texts have theirs."""
    text = "".join(f", {key}={value}" for key, (value, _) in output.items())
    for joints in (_JOINTS, _HEADER_JOINTS):
        skeleton, slots = joints.cut(text)
        again, actual = joints.cut(skeleton)
        assert again == skeleton
        assert len(actual) == len(slots)
        assert joints.slots(text) == slots


@settings(deadline=None)
@given(ATTRIBUTES)
def test_plain_keys_are_those_of_the_attributes(output: dict[str, tuple[str, Any]]) -> None:
    text = "".join(f", {key}={value}" for key, (value, _) in output.items())
    assert plain_keys(outlines([text])[0]) in (None, frozenset(output))


@pytest.mark.parametrize(
    ("outline", "keys"),
    [
        ("", ""),
        (", dimensions={0,0}, to_apply=%region_0.00", "dimensions to_apply"),
        (', calls=%f, metadata={op_name="" stack_frame_id=00}', "calls metadata"),
        (
            ', backend_config={"":"","":[{"":["",""]}]}, slice={[0:0], [00:00]}',
            "backend_config slice",
        ),
        (", dimensions={0}, dimensions={0}", None),
        (", dimensions={0},kind=kLoop", None),
        (", dimensions={0}, kLoop", None),
        (", dimensions={a", None),
        ("dimensions={0}", None),
        (', frontend_attributes={a="", b=""}', None),  # in doubt, as it is cut inside
        (", key0=0", None),  # the outline does not show the key
        (f", index={'0' * 41}", None),
        (", dimensions={0} // a", None),
    ],
)
def test_an_outline_has_plain_keys_only_without_doubt(outline: str, keys: str | None) -> None:
    assert plain_keys(outline) == (None if keys is None else frozenset(keys.split()))


def test_brackets_nest_as_deep_around_numbers_as_elsewhere() -> None:
    for inside in ("0", "a"):
        text = f"{'{' * DEPTH}{inside}{'}' * DEPTH}"
        assert cut_at_commas(text) == [text]
        assert cut_at_commas(f"{{{text}}}") is None


LAYOUTS = st.permutations(range(3)).flatmap(
    lambda order: st.sampled_from(["", "T(8,128)(2,1)S(1)", "T(*,8)E(4)", "S(5)", "L(2)"]).map(
        lambda properties: Layout(tuple(order), properties)
    )
)
ARRAYS = st.builds(
    Shape,
    st.sampled_from(["f32", "bf16", "f8e4m3b11fnuz", "pred", "s4"]),
    st.tuples(SIZES, SIZES, st.none() | SIZES),
    st.tuples(st.booleans(), st.booleans(), st.just(True)),
    st.none() | LAYOUTS,
)
SHAPES = st.recursive(
    ARRAYS | st.just(Shape("token")),
    lambda inside: st.lists(inside, max_size=4).map(
        lambda elements: Shape("tuple", elements=tuple(elements))
    ),
)


@settings(deadline=None)
@given(SHAPES)
def test_a_shape_is_read_as_it_is_printed(shape: Shape) -> None:
    assert ShapeTable()[str(shape)] == shape


@settings(deadline=None)
@given(
    st.sampled_from(["f32", "pred", "s4", "f99"]),
    st.lists(SIZES | st.just(10**18), max_size=3),
    st.none() | st.lists(st.integers(0, 3), min_size=1, max_size=3),
)
def test_a_plain_array_is_what_the_grammar_makes_of_it(
    element_type: str, sizes: list[int], order: list[int] | None
) -> None:
    def read(space: str) -> Shape | None:
        layout = "" if order is None else listed([*map(str, order)], comma=",")
        try:
            return ShapeTable()[f"{element_type}[{space}{','.join(map(str, sizes))}]{layout}"]
        except UnusableInput:
            return None

    assert read("") == read(" ")


def test_a_layout_says_what_its_properties_say() -> None:
    layout = Layout((1, 0), "T(8,128)(*,1)E(4)S(5)")
    assert layout.tiles == ((8, 128), (None, 1))
    assert (layout.memory_space, layout.element_size_in_bits) == (5, 4)
    plain = Layout((1, 0))
    assert (plain.tiles, plain.memory_space, plain.element_size_in_bits) == ((), 0, None)


STEPS = st.integers(1, 9)
WINDOWS = st.lists(
    st.builds(WindowDimension, SIZES, STEPS, NUMBERS, NUMBERS, STEPS, STEPS, st.booleans()),
    min_size=1,
)


@settings(deadline=None)
@given(WINDOWS)
def test_a_window_is_what_is_written(window: list[WindowDimension]) -> None:
    def field(key: str, numbers: list[Any]) -> str:
        return f"{key}={'x'.join(map(str, numbers))}"

    fields = [
        field("size", [item.size for item in window]),
        field("stride", [item.stride for item in window]),
        field("pad", [f"{item.low}_{item.high}" for item in window]),
        field("lhs_dilate", [item.base_dilation for item in window]),
        field("rhs_dilate", [item.window_dilation for item in window]),
        field("rhs_reversal", [int(item.is_reversed) for item in window]),
    ]
    assert read_window(listed(fields, comma=" ")) == tuple(window)


def test_a_key_of_any_length_is_itself_or_refused() -> None:
    assert split_attributes(", key1x=1, key2x=2") == {"key1x": "1", "key2x": "2"}
    long = "x" * 1000
    with pytest.raises(UnusableInput):
        split_attributes(f", key1{long}=1")
    assert split_attributes(f", {long}=1") == {long: "1"}


def test_a_long_list_means_what_a_short_one_does() -> None:
    """The grammar reads only those of its items that differ."""
    names = [f"region_{number}.1" for number in range(5000)]
    for sign in ("", "%"):
        text = f", control-predecessors={{{', '.join(sign + name for name in names)}}}"
        assert read_attributes(text) == {"control-predecessors": tuple(names)}
    groups = "{" + ",".join(f"{{{number},{number + 1}}}" for number in range(0, 10_000, 2)) + "}"
    assert read_attributes(f", x={groups}") == {"x": groups}
    slices = [(number, number + 8, 2) for number in range(500)]
    text = listed([listed([*map(str, part)], "[]", ":") for part in slices])
    assert read_attributes(f", slice={text}") == {"slice": tuple(slices)}
    for wrong in ("{%a, , %a", "%a, 1"):
        with pytest.raises(UnusableInput):
            read_attributes(f", control-predecessors={{{wrong}{', a' * 2000}}}")
