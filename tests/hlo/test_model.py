"""What a module answers, held against what its text says."""

from __future__ import annotations

import pytest

from fusionscope.errors import UnusableInput
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module, ParseTable, Shape, SourceLocation, parse, read, to_text
from fusionscope.hlo.attributes import (
    called_names,
    read_attribute,
    read_attributes,
    read_value,
    split_attributes,
)
from fusionscope.hlo.shape import ShapeTable
from fusionscope.hlo.text import DEPTH

TEXT = """HloModule m, is_scheduled=true, replica_count=2

FileNames
1 "model.py"
2 "library.py"

FunctionNames
1 "forward"
2 "helper"

FileLocations
1 {file_name_id=1 function_name_id=1 line=42 end_line=42 column=7 end_column=9}
2 {file_name_id=2 function_name_id=2 line=3 end_line=3 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

%left_over (q: f32[]) -> f32[] {
  ROOT %q = f32[] parameter(0)
}

%host (p.1: f32[8]) -> f32[8] {
  ROOT %p.1 = f32[8]{0} parameter(0)
}, execution_thread="host"

%body (p.2: f32[8]) -> f32[8] {
  %p.2 = f32[8]{0} parameter(0)
  ROOT %d = f32[8]{0} add(%p.2, %p.2), metadata={op_name="twice" stack_frame_id=2}
}

%condition (p.3: f32[8]) -> pred[] {
  %p.3 = f32[8]{0} parameter(0)
  ROOT %t = pred[] constant(true)
}

ENTRY %main (x: f32[8], y: (f32[8], s32[])) -> f32[8] {
  %y = (f32[8]{0}, s32[]) parameter(1)
  %x = f32[8]{0} parameter(0), metadata={op_name="x" source_file="old.py" source_line=5}
  %w = f32[8]{0} while(%x), condition=%condition, body=%body
  %s = f32[8]{0} add(%w, %y#0)
  ROOT %c = f32[8]{0} call(%s), to_apply=%host
}
"""


@pytest.fixture
def module() -> Module:
    return parse(TEXT, file="m.txt")


def test_the_module(module: Module) -> None:
    assert (module.name, module.is_scheduled) == ("m", True)
    assert module.attributes == {"is_scheduled": "true", "replica_count": "2"}
    assert [c.name for c in module.computations] == [
        "left_over",
        "host",
        "body",
        "condition",
        "main",
    ]
    assert module.entry is module.by_name["main"]
    assert module.instruction_count == 12
    assert module.edge_count == 2 + 1 + 1 + 2 + 1
    assert module.opcode_histogram() == {
        "parameter": 6, "add": 2, "constant": 1, "while": 1, "get-tuple-element": 1, "call": 1
    }  # fmt: skip
    assert len(list(module.walk())) == 12
    assert [c.name for c in module.reachable()] == ["host", "body", "condition", "main"]


def test_computations(module: Module) -> None:
    main = module.entry
    assert [i.name for i in main.parameters] == ["x", "y"]
    assert main.root.name == "c"
    assert [c.name for c in main.calls] == ["condition", "body", "host"]
    assert (main.execution_thread, module.by_name["host"].execution_thread) == ("main", "host")
    assert main.instruction("%w") is main.instruction("w")
    with pytest.raises(KeyError):
        main.instruction("z")


def test_instructions(module: Module) -> None:
    main = module.entry
    names = [i.name for i in main.instructions]
    assert names == ["y", "x", "w", "y#0", "s", "c"]
    element = main.instruction("y#0")
    assert (element.opcode, str(element.shape)) == ("get-tuple-element", "f32[8]{0}")
    assert (element.attribute("index"), element.operands) == (0, (main.instruction("y"),))
    assert [i.name for i in main.instruction("s").operands] == ["w", "y#0"]
    assert [i.name for i in main.instruction("x").users] == ["w"]
    twice = module.by_name["body"].root
    assert [i.name for i in twice.operands] == ["p.2", "p.2"]
    assert [i.name for i in twice.operands[0].users] == ["d"]
    assert [c.name for c in main.instruction("w").called] == ["condition", "body"]
    assert main.instruction("y").parameter_number == 1
    assert module.by_name["condition"].root.literal == "true"
    assert (main.root.is_root, twice.op_name, main.root.op_name) == (True, "twice", None)


def test_lines(module: Module) -> None:
    lines = TEXT.split("\n")
    for instruction in module.walk():
        name = instruction.name.partition("#")[0]
        if name == instruction.name:
            assert lines[instruction.line - 1].startswith(("  ", "  ROOT "))
            assert f"%{name} = " in lines[instruction.line - 1]
    # An element has the line of its first user.
    assert "%s = " in lines[module.entry.instruction("y#0").line - 1]


def test_sources(module: Module) -> None:
    assert module.by_name["body"].root.stack == (
        SourceLocation("library.py", 3, "helper", 1),
        SourceLocation("model.py", 42, "forward", 7),
    )
    assert str(module.by_name["body"].root.source) == "library.py:3"
    assert module.entry.instruction("x").source == SourceLocation("old.py", 5)
    assert module.entry.root.source is None


def test_printing(module: Module) -> None:
    assert to_text(module) == TEXT.replace("}\n\n%", "}\n\n%") + "\n"
    assert parse(to_text(module)) == module


def test_modules_are_equal_where_they_say_the_same(module: Module) -> None:
    by_hand = TEXT.replace("%", "").replace(" -> f32[8] {", " -> f32[8]\n{ // opened\n")
    assert parse(by_hand) == module
    for old, new in (
        ("add(%w, %y#0)", "add(%y#0, %w)"),
        ("constant(true)", "constant(false)"),
        ("f32[8]{0} while", "f32[8] while"),
        ('op_name="twice"', 'op_name="thrice"'),
        ("  ROOT %t = ", "  %t = "),
        ("HloModule m", "HloModule n"),
        ("replica_count=2", "replica_count=3"),
        ('"host"', '"guest"'),
    ):
        changed = TEXT.replace(old, new)
        assert changed != TEXT
        equal = old.startswith("  ROOT")  # the last instruction is the root all the same
        assert (parse(changed) == module) is equal, old


def test_places_in_text_by_hand() -> None:
    module = parse(
        "ENTRY e { p = f32[] parameter(0)\n   q = f32[] negate(p) ROOT r = f32[]\n add(p, q) }"
    )
    places = [(i.name, i.line, i.column) for i in module.entry.instructions]
    assert places == [("p", 1, 11), ("q", 2, 4), ("r", 2, 24)]


def test_contradictions_come_out_when_looked_at() -> None:
    text = TEXT.replace("add(%p.2, %p.2)", "add(%p.2, %gone)")
    module = read(text, ParseTable(), file="m.txt")
    assert len(module.entry.instructions) == 6
    for look in (module.check, lambda: module.by_name["body"].instructions):
        with pytest.raises(UnusableInput, match=r"m\.txt:29:3: d reads 'gone'"):
            look()


def test_equal_texts_of_different_files_name_their_own() -> None:
    table = ParseTable()
    text = TEXT.replace("add(%p.2, %p.2)", "add(%p.2, %gone)")
    for file in ("one.txt", "two.txt"):
        with pytest.raises(UnusableInput, match=rf"^{file}:"):
            read(text, table, file=file).check()


def test_stages_share_what_did_not_change(module: Module) -> None:
    table = ParseTable()
    first = read(TEXT, table)
    second = read(TEXT.replace("add(%w, %y#0)", "add(%y#0, %w)"), table)
    shared = [a is b for a, b in zip(first.bodies, second.bodies, strict=True)]
    assert shared == [True, True, True, True, False]
    lines = [
        a is b for a, b in zip(first.bodies[-1].written, second.bodies[-1].written, strict=True)
    ]
    assert lines == [True, True, True, False, True]


def test_stages_share_a_long_computation_of_which_only_the_last_text_is_kept() -> None:
    def text(operand: str, count: int = 3000) -> str:
        lines = [f"  %a{i} = f32[2] negate(%{operand if i else 'x'})" for i in range(count)]
        short = ["%short {", f"  %s = f32[2] parameter(0) /*{operand}*/"]
        long = ["%long {", "  %x = f32[2] parameter(0)", *lines]
        entry = ["ENTRY %e {", "  %y = f32[2] parameter(0)"]
        entry.append("  %c = f32[2] call(%y), to_apply=%long")
        return "\n".join(["HloModule m", *short, "}", *long, "}", *entry, "}"])

    table = ParseTable()
    first, second, again = (read(text(item), table) for item in ("x", "a0", "x"))
    assert len(text("x")) > 65_536
    assert first.bodies[1] is again.bodies[1] is not second.bodies[1]
    for saved in (table.pieces, table.following, table.following.values()):
        assert sum(len(item) > 65_536 for item in saved) == 1
    assert to_text(again) == to_text(read(text("x"), ParseTable()))
    table = ParseTable()
    first, second, again = (read(text(item, 30), table) for item in ("x", "a0", "x"))
    assert first.bodies[1] is again.bodies[1] is not second.bodies[1]
    assert len(table.pieces) == 5


def test_every_stage_is_read_as_if_it_were_the_first() -> None:
    row = "2 {file_location_id=2 parent_frame_id=2}\n"
    another = "%another (q: f32[]) -> f32[] {\n  ROOT %q = f32[] parameter(0)\n}\n\n"
    stages = [
        TEXT,
        TEXT.replace(row, row + "3 {file_location_id=1 parent_frame_id=3}\n"),
        TEXT.replace(row, ""),
        TEXT.replace("%left_over", another + "%left_over"),
        TEXT.replace("ENTRY", another + "ENTRY"),
        TEXT.replace("add(%p.2, %p.2)", "multiply(%p.2, %p.2)"),
        TEXT,
    ]
    table = ParseTable()
    for text in stages:
        actual, alone = read(text, table), read(text, ParseTable())
        actual.check()
        assert actual == alone
        assert actual.lines == alone.lines
        assert actual.frames is not None
        assert actual.frames.text == alone.frames.text  # type: ignore[union-attr]


# Shapes


def shape(text: str) -> Shape:
    return ShapeTable()[text]


@pytest.mark.parametrize(
    ("text", "byte_size"),
    [
        ("f32[]", 4),
        ("f32[2,3]{1,0}", 24),
        ("pred[10]", 10),
        ("bf16[4,0]", 0),
        ("c128[3]", 48),
        ("s4[10]", 10),
        ("s4[10]{0:E(4)}", 5),
        ("s4[3]{0:E(4)}", 2),
        ("f8e4m3fn[7]", 7),
        ("(f32[2], (s64[3], token[]), ())", 32),
        ("f32[<=8,2]", 64),
        ("token[]", 0),
        ("b(f32[8])", 32),
    ],
)
def test_sizes_of_shapes(text: str, byte_size: int) -> None:
    assert shape(text).byte_size == byte_size


@pytest.mark.parametrize(
    "text",
    [
        "f32[]",
        "f32[2,3]{1,0:T(8,128)(2,1)S(1)}",
        "(f32[2]{0}, (), (s32[], token[]))",
        "f32[<=8,?]",
        "u32[]{:S(2)}",
        "b(f32[8]{0})",
    ],
)
def test_shapes_print_as_they_are_written(text: str) -> None:
    assert str(shape(text)) == text


def test_layouts() -> None:
    layout = shape("bf16[8,16]{0,1:T(8,128)(2,1)S(5)}").layout
    assert layout is not None
    assert layout.minor_to_major == (0, 1)
    assert layout.tiles == ((8, 128), (2, 1))
    assert (layout.memory_space, layout.element_size_in_bits) == (5, None)
    packed = shape("s4[8]{0:T(2,*)E(4)}").layout
    assert packed is not None
    assert packed.tiles == ((2, None),)
    assert (packed.memory_space, packed.element_size_in_bits) == (0, 4)


def test_compatible_shapes() -> None:
    assert shape("f32[2,3]{1,0}").compatible(shape("f32[2,3]{0,1:T(8)}"))
    assert shape("(f32[2], s32[])").compatible(shape("(f32[2]{0}, s32[])"))
    for second in ("f32[3,2]", "f32[2,3,1]", "bf16[2,3]", "(f32[2,3])"):
        assert not shape("f32[2,3]").compatible(shape(second))
    assert not shape("(f32[2], s32[])").compatible(shape("(f32[2])"))


@pytest.mark.parametrize(
    "text",
    ["", "f32", "f32[", "f32[2", "f33[2]", "f32[2,]", "f32[-1]", "(f32[2]", "(f32[2],)", "f32[2]]",
     "(,)", "f32[2]{0,1}", "f32[2]{a}", "f32[2] f32[3]", "f32[2]{0:T}", "f32[1234567890123456789]"],
)  # fmt: skip
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(UnusableInput):
        shape(text)


# Attributes


def test_attributes_are_cut_where_they_end() -> None:
    text = (
        ', kind=kLoop, calls=%f, metadata={op_name="a, b=c}" stack_frame_id=3}, '
        'backend_config={"x":{"y":[1,2]},"z":"}"}, replica_groups=[2,4]<=[4,2]T(1,0), d={{0,1},{2}}'
    )
    actual = split_attributes(text)
    assert list(actual) == ["kind", "calls", "metadata", "backend_config", "replica_groups", "d"]
    assert actual["metadata"] == '{op_name="a, b=c}" stack_frame_id=3}'
    assert actual["replica_groups"] == "[2,4]<=[4,2]T(1,0)"
    assert read_value("metadata", actual["metadata"]) == {
        "op_name": "a, b=c}",
        "stack_frame_id": "3",
    }
    assert read_value("backend_config", actual["backend_config"]) == {"x": {"y": [1, 2]}, "z": "}"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            ', metadata={op_name="a}" stack_frame_id=7}, dimensions={0}',
            {"metadata": {"op_name": "a}", "stack_frame_id": "7"}, "dimensions": (0,)},
        ),
        (
            ', index=1, metadata={op_name="\\"", source_line=7}',
            {"index": 1, "metadata": {"op_name": '"', "source_line": "7"}},
        ),
        (", index=1, metadata={}", {"index": 1, "metadata": {}}),
        (', a=", metadata={b=1}"', {"a": ", metadata={b=1}"}),
        (", a={b, metadata={c=1}}", {"a": "{b, metadata={c=1}}"}),
    ],
)
def test_metadata_is_an_attribute_among_others(text: str, expected: dict[str, object]) -> None:
    assert list(read_attributes(text).items()) == list(expected.items())
    assert list(split_attributes(text)) == list(expected)
    assert [read_attribute(text, key) for key in expected] == list(expected.values())


@pytest.mark.parametrize(
    "text",
    [
        ', metadata={op_name="a"}, metadata={op_name="a"}',
        ', index=1, metadata={op_name="a"}, index=1',
    ],
)
def test_no_attribute_is_written_twice(text: str) -> None:
    with pytest.raises(UnusableInput, match="twice, expected it once"):
        read_attributes(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("3", 3),
        ("-3", -3),
        ("true", True),
        ("{}", ()),
        ("{1,-2, 3}", (1, -2, 3)),
        ('"a\\"b\\\\\\n\\101\\x42"', 'a"b\\\nAB'),
        ("b01f_01io->b01f", "b01f_01io->b01f"),
        ("true_color", "true_color"),
        ('{"a":}', '{"a":}'),
    ],
)
def test_values_are_read(value: str, expected: object) -> None:
    assert read_value("any", value) == expected


@pytest.mark.parametrize("value", ["1" * 5000, '{"a":', "", "1,2", "a, b=c, b=d", "(" * 5000])
def test_what_is_no_value_is_not_read(value: str) -> None:
    with pytest.raises(UnusableInput):
        read_value("any", value)


@pytest.mark.parametrize(
    ("attributes", "names"),
    [
        ("", ()),
        (", kind=kLoop, calls=%f.1", ("f.1",)),
        (', kind=kLoop, calls=%f.1, metadata={op_name="to_apply=%g"}', ("f.1",)),
        (", to_apply=%f, called_computations={%g}", ("f", "g")),
        (", condition=c, to_apply=%f", ("c", "f")),
        (", condition=%c, body=%b", ("c", "b")),
        (", branch_computations={%a, b ,%c}, metadata={}", ("a", "b", "c")),
        (", branch_computations={%a.1, %b.2 ,%c}", ("a.1", "b.2", "c")),
        (", called_computations={}", ()),
        (', backend_config="calls=%f", to_apply=g', ("g",)),
        (', backend_config={"a":", calls=%f"}', ()),
        (', frontend_attributes={a="b", calls="%f"}', ()),
    ],
)
def test_called_names(attributes: str, names: tuple[str, ...]) -> None:
    assert called_names(attributes) == names


def test_waiting_for_an_element_that_the_text_abbreviates() -> None:
    # As the compiler writes loops that it double-buffers (jaxlib 0.12): the name of the element
    # that ``%p#1`` stands for is in no other line.
    module = parse("""
HloModule m
ENTRY e {
  %p = (f32[2]{0}, f32[2]{0}) parameter(0)
  %a = f32[2]{0} negate(%p#1)
  ROOT %b = f32[2]{0} negate(%a), control-predecessors={%element.1, %a}
}
""")
    module.check()
    *_, a, b = module.entry.instructions
    assert b.waits_for == (a,)
    (copied,) = [
        instruction for instruction in MutableModule(module).walk() if instruction.name == "b"
    ]
    assert [predecessor.name for predecessor in copied.predecessors] == ["a"]


@pytest.mark.parametrize("depth", [1, 3, 4, DEPTH])
def test_a_shape_may_nest_deep(depth: int) -> None:
    shape = f"{'(' * depth}f32[2]{{0}}{')' * depth}"
    module = parse(f"""HloModule m

ENTRY %e (a: {shape}) -> {shape} {{
  %a = {shape} parameter(0)
  %b = f32[] constant(1)
  ROOT %c = {shape} copy({shape} %a)
}}
""")
    assert [str(instruction.shape) for instruction in module.entry.instructions] == [
        shape,
        "f32[]",
        shape,
    ]


def test_the_line_that_makes_all_operations_of_tensorflow_is_no_place():
    text = (
        'HloModule m\n\nENTRY e {\n  %x = f32[] parameter(0), metadata={op_name="x" source_file='
        '"/lib/tensorflow/python/framework/ops.py" source_line=5}\n  ROOT %y = f32[] negate(%x), '
        'metadata={op_name="y" source_file="model.py" source_line=6}\n}\n'
    )
    x, y = parse(text).entry.instructions
    assert x.stack == ()
    assert [place.file for place in y.stack] == ["model.py"]
