"""Whether two modules say the same: pairs of small modules, and the check that backs `diff`."""

from collections import Counter
from pathlib import Path

import pytest
from conformance import notations
from conformance.matching import check_notations
from sample_kinds import all_samples

from fusionscope.compare.difference import compare
from fusionscope.history.changes import EditKind, find_changes
from fusionscope.history.meaning import ATTRIBUTES, USUAL, AttributeMeaning
from fusionscope.history.sameness import check_sameness
from fusionscope.hlo import parse, to_text
from fusionscope.hlo.devices import explicit_groups
from fusionscope.hlo.parser import ParseTable, read
from fusionscope.hlo.shardings import normal_sharding

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
PAIRS = Path(__file__).parent / "pairs"

# What differs is named by the files' contents alone; the compiler's parser accepts all of them.
DIFFERENT = [
    # Another element of a tuple: of a while, in a loop's body, of a custom call, a parameter, a
    # fusion.
    ("w1", "w2", ("r", "index")),
    ("w3", "w4", ("r", "index")),
    ("live1", "live4", ("y", "index")),
    ("c1", "c2", ("r", "index")),
    ("g1", "g2", ("r", "index")),
    ("fu1", "fu2", ("g", "index")),
    # Another instruction is ROOT.
    ("pr1", "pr2", ("b", "root")),
    ("root1", "root2", ("y", "root")),
    ("sh1", "sh2", ("a", "sharding")),
]
SAME = [
    ("lay1", "lay2"),  # a default layout left out
    ("rg1", "rg2"),  # the same replica groups in three notations
    ("rg1", "rg3"),
    ("rg2", "rg3"),
]


@pytest.mark.parametrize(("first", "second", "expected"), DIFFERENT)
def test_different(first, second, expected):
    (module,) = compare(PAIRS / f"{first}.txt", PAIRS / f"{second}.txt").modules
    (edit,) = module.edits
    assert (edit.before.name, *(name for name, _, _ in edit.fields)) == expected
    assert compare(PAIRS / f"{second}.txt", PAIRS / f"{first}.txt").modules


@pytest.mark.parametrize(("first", "second"), SAME)
def test_same(first, second):
    for pair in ((first, second), (second, first)):
        actual = compare(*(PAIRS / f"{name}.txt" for name in pair))
        assert actual.is_same
        assert [(item.module, item.swapped, item.flags) for item in actual.same] == [("m", (), ())]


KEYS = notations.grammar_keys()
# Two values for every key that the grammar knows by name, by its terminal.
VALUES = {
    "INTEGERS_KEY": ("{0,1}", "{1,0}"),
    "INTEGER_KEY": ("2", "3"),
    "FLAG_KEY": ("true", "false"),
    "CALL_KEY": ("%one", "%other"),
    "CALLS_KEY": ("{%one}", "{%other}"),
    "NAMES_KEY": ("{%one}", "{%other}"),
    "STRING_KEY": ('"one"', '"other"'),
    "METADATA_KEY": ('{op_name="one"}', '{op_name="other"}'),
    "WINDOW_KEY": ("{size=2 pad=0_1}", "{size=2 pad=1_0}"),
    "SLICE_KEY": ("{[0:1]}", "{[1:2]}"),
    "PADDING_KEY": ("0_1", "1_0"),
    "SHAPES_KEY": ("{f32[], f32[], f32[]}", "{f32[]{:S(1)}, f32[], f32[]}"),
    "PROGRAM_KEY": ("{(f32[])->f32[]}", "{(f32[])->f32[1]{0}}"),
}
CALLING = """HloModule m

%one {{
  %a = f32[] parameter(0)
  ROOT %b = f32[] sine(%a)
}}

%other {{
  %c = f32[] parameter(0)
  ROOT %d = f32[] cosine(%c)
}}

ENTRY %main {{
  %p = f32[] parameter(0)
  %x = f32[] custom-call(%p), custom_call_target="x"
  %y = f32[] sine(%p)
  ROOT %z = f32[] custom-call(%p, %x, %y), {attribute}
}}
"""


def any_attribute(text):
    """Read a module as those of dumps are read: an operation may have any attribute."""
    return read(text, ParseTable())


def test_every_key_of_the_grammar_is_listed():
    """So that nobody forgets to say what a new one means."""
    assert set(KEYS) == set(VALUES)
    names = {key for keys in KEYS.values() for key in keys}
    assert names <= ATTRIBUTES.keys(), names - ATTRIBUTES.keys()


@pytest.mark.parametrize(
    ("terminal", "key"), [(t, key) for t, keys in KEYS.items() for key in keys]
)
def test_every_key_of_the_grammar(terminal, key):
    """Another value is told with its key, unless it says nothing."""
    values = ("{%x}", "{%y}") if key == "control-predecessors" else VALUES[terminal]
    modules = [any_attribute(CALLING.format(attribute=f"{key}={value}")) for value in values]
    edits = find_changes(*modules, None).edits
    reported = [(e.before.name, name) for e in edits for name, _, _ in e.fields if e.before]
    if ATTRIBUTES.get(key) in (AttributeMeaning.NOTHING, AttributeMeaning.CHANNEL):
        assert reported == []
    else:
        assert reported == [("z", key)]
    # The same value once more, and the value beside none.
    assert check_sameness(modules[0], any_attribute(to_text(modules[0]))).is_same
    without = any_attribute(CALLING.format(attribute="metadata={}"))
    is_silent = ATTRIBUTES.get(key) is AttributeMeaning.NOTHING or USUAL.get(key) == values[0]
    assert check_sameness(modules[0], without).is_same is is_silent


def test_channels():
    """Their numbers say nothing; who shares one does."""
    text = """HloModule m

ENTRY %main {{
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %x = f32[8] collective-permute(%p), channel_id={0}, source_target_pairs={{{{0,1}}}}
  %y = f32[8] collective-permute(%q), channel_id={1}, source_target_pairs={{{{1,0}}}}
  ROOT %z = f32[8] subtract(%x, %y)
}}
"""
    first = parse(text.format(1, 2))
    for numbers, expected in (((7, 9), []), ((2, 1), []), ((3, 3), ["y"])):
        module = parse(text.format(*numbers))
        edits = find_changes(first, module, None).edits
        assert [edit.before.name for edit in edits if edit.before] == expected
        assert check_sameness(first, module).is_same is not bool(expected)


TWO = """HloModule m

ENTRY %main {{
  %p = f32[{size}] parameter(0)
  %q = f32[8] parameter(1)
  %x = f32[8] slice(%p), slice={{[0:8]}}
  ROOT %z = f32[8] {operation}
}}
"""


def test_a_parameter_of_another_type_is_the_same_parameter():
    modules = [parse(TWO.format(size=size, operation="add(%x, %q)")) for size in (16, 32)]
    (edit,) = find_changes(*modules, None).edits
    assert (edit.kind, edit.before.name, edit.after.name) == (EditKind.UPDATED, "p", "p")
    assert [name for name, _, _ in edit.fields] == ["shape"]


@pytest.mark.parametrize("operation", ["add({})", "maximum({})", "compare({}), direction=EQ"])
def test_swapped(tmp_path, operation):
    """Told, and no difference."""
    for name, operands in (("one", "%x, %q"), ("other", "%q, %x")):
        text = TWO.format(size=16, operation=operation.format(operands))
        if "compare" in text:
            text = text.replace("%z = f32[8]", "%z = pred[8]")
        (tmp_path / name).write_text(text)
    actual = compare(tmp_path / "one", tmp_path / "other")
    assert actual.is_same
    assert [item.swapped for item in actual.same] == [("z",)]


@pytest.mark.parametrize("operation", ["subtract({})", "atan2({})", "compare({}), direction=LT"])
def test_swapped_where_the_order_counts(operation):
    modules = [
        parse(TWO.format(size=16, operation=operation.format(operands)).replace(
            "%z = f32", "%z = pred" if "compare" in operation else "%z = f32"
        ))
        for operands in ("%x, %q", "%q, %x")
    ]  # fmt: skip
    actual = find_changes(*modules, None)
    (edit,) = actual.edits
    assert (edit.before.name, [name for name, _, _ in edit.fields]) == ("z", ["operands"])
    assert actual.swapped == ()


PERMUTED = """HloModule m

%fused {{
  %a = f32[8] parameter({0})
  %b = f32[8] parameter({1})
  ROOT %c = f32[8] subtract(%a, %b)
}}

ENTRY %main {{
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  ROOT %f = f32[8] fusion({2}), kind=kLoop, calls=%fused
}}
"""


def test_what_no_other_edit_tells_of():
    """A fusion that takes its operands in another order computes the same: the matching looks
    through it. It is not the same text either, so the second check shows it."""
    modules = [
        parse(PERMUTED.format(0, 1, "%p, %q")),
        parse(PERMUTED.format(1, 0, "%q, %p")),
    ]
    edits = find_changes(*modules, None).edits
    assert {edit.kind for edit in edits} == {EditKind.DIFFERENT}
    assert {edit.instruction.name for edit in edits} == {"c"}


# By hand, from XLA's replica_group.cc and tile_assignment.cc.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1,4]<=[4]", "{{0,1,2,3}}"),
        ("[2,4]<=[4,2]T(1,0)", "{{0,2,4,6},{1,3,5,7}}"),
        ("mesh['x'=4,'y'=2]{'x'}", "{{0,2,4,6},{1,3,5,7}}"),
        ("mesh['x'=4,'y'=2]{'y'}", "{{0,1},{2,3},{4,5},{6,7}}"),
        ("mesh['x'=8]{'x':(1)2}", "{{0,4},{1,5},{2,6},{3,7}}"),
        ("mesh['x'=8]{'x':(2)2}", "{{0,2},{1,3},{4,6},{5,7}}"),
        ("mesh['x'=8]{'x':(1)2,'x':(4)2}", "{{0,1,4,5},{2,3,6,7}}"),
        ("mesh['x'=2,'y'=2],device_ids=(0,1,3,2){'y'}", "{{0,1},{3,2}}"),
        ("mesh['x'=2,'y'=2],device_ids=([2,2]T(1,0)){'y'}", "{{0,2},{1,3}}"),
        ("{{0,1},{2,3}}", "{{0,1},{2,3}}"),
        # What contradicts itself, or is no list of devices, stays as it is.
        *((text, text) for text in ("{}", "mesh['x'=4]{'y'}", "mesh['x'=4]{'x':(3)2}")),
        *((text, text) for text in ("[2,3]<=[4]", "[9,99999999]<=[99,9999999]", "[1,4]<=[4]T(3)")),
    ],
)  # fmt: skip
def test_replica_groups(text, expected):
    assert explicit_groups(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{devices=[2,1]<=[2]}", "{devices=[2,1]0,1}"),
        ("{devices=[2,2]<=[2,2]T(1,0)}", "{devices=[2,2]0,2,1,3}"),
        ("{{replicated},{devices=[2]<=[2]}}", "{{replicated},{devices=[2]0,1}}"),
        ('{devices=[2]<=[2],metadata={op_name="}"}}', "{devices=[2]0,1}"),
        ("{maximal device=1}", "{maximal device=1}"),
        # What contradicts itself, or is no sharding, stays as it is.
        *(
            (text, text)
            for text in (
                "{devices=[99999999999]<=[99999999999]}",
                "{devices=[2,4]<=[0,8]}",
                "{devices=[-2,-4]<=[8]}",
                "{devices=[2]0,1 last_tile_dims={manual,manual}}",
                "{mesh['x'=0], [{'x'}]}",
                "{mesh['x'=8], [{'x':(0)2}]}",
                "{mesh['x'=8], [{'y'}]}",
                "{mesh['x'=8], [{'x'}, {'x'}]}",
                "{metadata={",
                "{" * 5000,
            )
        ),
    ],
)
def test_sharding(text, expected):
    assert normal_sharding(text) == expected


@pytest.mark.slow
@pytest.mark.parametrize("dump", all_samples())
def test_notations_and_changes(dump, samples):
    """The final stage in other notations, and with an attribute, a root, an element of a tuple or
    a sharding changed; renamed and in another order. See tools/conformance/matching.py."""
    module = samples.module(dump)
    counts: Counter[str] = Counter()
    assert list(check_notations(module, 1, counts, plain=False)) == []
    assert counts["mutants: sharding_changed, disguised"] == counts["mutants: header"] == 1
