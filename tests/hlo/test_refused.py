"""What the compiler's parser refuses, and fusionscope's with it: one text of each kind.

Where jaxlib 0.12 is installed, the compiler's own parser is asked as well.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from test_bad_input import TYPICAL_MISTAKES, of_one
from test_language import CASES

from fusionscope.errors import UnusableInput
from fusionscope.hlo import ParseTable, parse, read


class Refused(NamedTuple):
    """``line`` and ``words`` are where and what the message has to say."""

    name: str
    text: str
    line: int
    words: str


ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


def reduced(attributes: str) -> str:
    return (
        f"HloModule m\n{ADD}ENTRY e {{\n  p = f32[8] parameter(0)\n"
        f"  ROOT r = f32[8] all-reduce(p), to_apply=add, {attributes}\n}}\n"
    )


def convolved(window: str, labels: str = "b01f_01io->b01f") -> str:
    return of_one(
        "  x = f32[1,8,8,3] parameter(0)\n  y = f32[3,3,3,4] parameter(1)\n"
        f"  ROOT c = f32[1,8,8,4] convolution(x, y), window={window}, dim_labels={labels}"
    )


def started(steps: str) -> str:
    return (
        "HloModule m\nw { p = f32[2] parameter(0) ROOT n = f32[2] negate(p) }\n"
        "v { p = f32[2] parameter(0) ROOT n = f32[2] abs(p) }\nENTRY e {\n"
        f"  p = f32[2] parameter(0)\n{steps}\n}}\n"
    )


def of_parameter(shape: str, line: str) -> str:
    return of_one(f"  p = {shape} parameter(0)\n  ROOT r = {line}")


START = "  s = ((f32[2]), f32[2], s32[]) async-start(p), calls=w\n"
SUGAR = "  s = ((f32[2]), f32[2], s32[]) negate-start(p)\n"
HEADER = "HloModule m, {}\nENTRY e {{\n  ROOT p = (f32[2], f32[3]) parameter(0)\n}}\n"

REFUSED = [
    # Operations
    Refused("unknown operation", of_parameter("f32[2]", "f32[2] squash(p)"), 4, "'squash'"),
    Refused(
        "no update of this collective",
        of_parameter("((f32[2]), f32[2])", "((f32[2]), f32[2]) all-gather-update(p)"),
        4, "'all-gather-update'",
    ),
    Refused("no operands", of_parameter("f32[2]", "f32[2] gather(p)"), 4, "expected at least 2"),
    Refused("one operand", of_parameter("f32[2]", "f32[2] reduce(p)"), 4, "expected at least 2"),
    Refused(
        "an index too few",
        of_one(
            "  p = f32[8,8] parameter(0)\n  i = s32[] parameter(1)\n"
            "  ROOT d = f32[2,2] dynamic-slice(p, i), dynamic_slice_sizes={2,2}"
        ),
        5, "d has 1 indices, expected 2",
    ),
    Refused(
        "other elements", of_parameter("f32[4,8]", "f32[31] reshape(p)"), 4, "as many elements"
    ),
    Refused(
        "an array received",
        of_parameter("token[]", "f32[2] recv(p), channel_id=1"), 4, "expected a tuple",
    ),
    Refused("an array fed in", of_parameter("token[]", "f32[2] infeed(p)"), 4, "expected a tuple"),
    Refused(
        "two dimensions",
        of_parameter("f32[2,2]", "s32[] get-dimension-size(p), dimensions={0,1}"),
        4, "2 dimensions, expected 1",
    ),
    Refused(
        "a branch for a number by truth",
        of_one(
            "  p = s32[] parameter(0)\n  x = f32[2] parameter(1)\n  ROOT c = f32[2] conditional("
            "p, x, x), true_computation={ ROOT a = f32[2] parameter(0) }, "
            "false_computation={ ROOT a = f32[2] parameter(0) }"
        ),
        5, "expected branch_computations=",
    ),
    Refused(
        "a branch for what is no scalar",
        of_one(
            "  p = s32[2] parameter(0)\n  x = f32[2] parameter(1)\n  ROOT c = f32[2] conditional("
            "p, x), branch_computations={{ ROOT a = f32[2] parameter(0) }}"
        ),
        5, "branches on s32[2]",
    ),
    Refused(
        "a broadcast that goes nowhere",
        of_parameter("f32[2]", "f32[2,3] broadcast(p)"), 4, "expected dimensions=",
    ),
    # Asynchronous ones
    Refused(
        "start without operands' shapes",
        started("  ROOT s = (f32[2], f32[2], s32[]) async-start(p), calls=w"),
        6, "expected a tuple of its operands'",
    ),
    Refused(
        "start without a result", started("  ROOT s = ((f32[2])) async-start(p), calls=w"),
        6, "expected a tuple of its operands'",
    ),
    Refused(
        "done twice",
        started(f"{START}  d = f32[2] async-done(s)\n  ROOT e = f32[2] async-done(d)"),
        8, "which is done",
    ),
    Refused(
        "done with another computation",
        started(f"{START}  ROOT d = f32[2] async-done(s), calls=v"), 7, "has calls=v",
    ),
    Refused(
        "done on another thread",
        started(f'{START}  ROOT d = f32[2] async-done(s), async_execution_thread="t"'),
        7, 'async_execution_thread="t"',
    ),
    Refused(
        "shorthand for another operation",
        started(f"{SUGAR}  ROOT d = f32[2] abs-done(s)"), 7, "goes on with abs",
    ),
    Refused(
        "shorthand on another thread",
        started(f'{SUGAR}  ROOT d = f32[2] negate-done(s), async_execution_thread="t"'),
        7, 'runs on "t"',
    ),
    # Words
    Refused(
        "direction",
        of_parameter("f32[2]", "pred[2] compare(p, p), direction=LESS"), 4, "direction=LESS",
    ),
    Refused(
        "accuracy",
        of_parameter("f32[2]", "f32[2] tanh(p), result_accuracy={mode=best}"), 4, "{mode=best}",
    ),
    Refused(
        "what accuracy is made of",
        of_parameter("f32[2]", "f32[2] tanh(p), result_accuracy={ulps=2}"), 4, "{ulps=2}",
    ),
    Refused(
        "custom-call API",
        of_parameter(
            "f32[2]", 'f32[2] custom-call(p), custom_call_target="f", api_version=API_VERSION_9'
        ),
        4, "API_VERSION_9",
    ),
    Refused(
        "algorithm",
        of_parameter(
            "f32[2]",
            "f32[] dot(p, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}, algorithm=fast",
        ),
        4, "algorithm=fast",
    ),
    Refused(
        "precision",
        of_parameter(
            "f32[2]",
            "f32[] dot(p, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}, "
            "operand_precision={best,best}",
        ),
        4, "operand_precision={best,best}",
    ),
    # Numbers that do not fit each other
    Refused(
        "tiles for other devices",
        of_parameter("f32[4,4]", "f32[4,4] copy(p), sharding={devices=[2,2]0,1,2}"),
        4, "tiles [2,2] hold 3 devices",
    ),
    Refused(
        "tiles for another iota",
        of_parameter("f32[4,4]", "f32[4,4] copy(p), sharding={devices=[2,2]<=[8]}"),
        4, "tiles [2,2] hold 8 devices",
    ),
    Refused("groups of another iota", reduced("replica_groups=[2,2]<=[8]"), 5, "hold 8 devices"),
    Refused("groups that are a word", reduced("replica_groups=all"), 5, "replica_groups=all"),
    Refused("no such axis", reduced("replica_groups=mesh['x'=2] {'y'}"), 5, "no axis 'y'"),
    Refused("no such axis by number", reduced("replica_groups=mesh['x'=2] {'1'}"), 5, "no axis"),
    Refused(
        "global ids without a channel",
        reduced("replica_groups={}, use_global_device_ids=true"), 5, "expected a channel_id=",
    ),
    Refused("window of two ranks", convolved("{size=3x3 stride=1}"), 5, "stride="),
    Refused("padding of three numbers", convolved("{size=3x3 pad=1_1_1x1_1}"), 5, "found '_1x1_1'"),
    Refused("labels", convolved("{size=3x3}", "b01g_01io->b01f"), 5, "dim_labels=b01g"),
    Refused("labels that count on", convolved("{size=3x3}", "b09f_01io->b01f"), 5, "found 9"),
    Refused(
        "layouts for another number of operands",
        of_parameter(
            "f32[2]{0}",
            'f32[2] custom-call(p), custom_call_target="f", '
            "operand_layout_constraints={f32[2]{0}, f32[2]{0}}",
        ),
        4, "of 2 operands, expected 1",
    ),
    Refused(
        "layouts for other shapes",
        of_parameter(
            "f32[2]{0}",
            'f32[2] custom-call(p), custom_call_target="f", operand_layout_constraints={f32[3]{0}}',
        ),
        4, "to f32[3]{0}, but that is f32[2]{0}",
    ),
    Refused(
        "a physical shape without sparsity",
        of_one("  ROOT p = f32[8,8]{1,0:T(128,8)P(f32[8,8])} parameter(0)"), 3, "physical shape",
    ),
    Refused("a NaN's payload", of_one("  ROOT c = bf16[] constant(nan(0x3ff))"), 3, "0x3ff"),
    Refused("no payload", of_one("  ROOT c = f8e4m3fn[] constant(nan(0x1))"), 3, "0x1"),
    Refused("one complex value", of_one("  ROOT c = c64[2] constant((1, 2))"), 3, "not fill"),
    Refused("one value for nothing", of_one("  ROOT c = f32[0] constant(1)"), 3, "not fill"),
    Refused("braces for one dimension", of_one("  ROOT c = f32[1,1] constant({4})"), 3, "not fill"),
    # Spaces, comments and commas inside of tokens and lists
    Refused(
        "a space in a size",
        of_parameter("f32[64]", "f32[6 4] negate(p)"), 4, "expected a shape",
    ),
    Refused(
        "a space in a size, in a line of two instructions",
        of_one("  p = f32[64] parameter(0) n = f32[64] abs(p)\n  ROOT r = f32[6 4] negate(n)"),
        4, "expected a shape",
    ),
    Refused(
        "a space in a size of a signature",
        "HloModule m\nENTRY e (p: f32[6 4]) -> f32[64] {\n  ROOT p = f32[64] parameter(0)\n}\n",
        2, "expected a shape",
    ),
    Refused(
        "a comma too many in an operand's layout",
        of_parameter("f32[8,8]{1,0}", "f32[8,8] negate(f32[8,8]{1, ,0} p)"), 4, "an integer",
    ),
    Refused(
        "a comment in a number of tiles",
        of_parameter("f32[8]", "f32[8] negate(p), sharding={devices=[1/*c*/1]<=[11]}"),
        4, "found '1'",
    ),
    Refused(
        "a space between devices",
        of_parameter("f32[8]", "f32[8] negate(p), sharding={devices=[4]0,1,2,3 3}"),
        4, "found '3'",
    ),
    Refused("a comma too many in groups", reduced("replica_groups={{0,,1}}"), 5, "an integer"),
    # Attributes
    Refused(
        "an attribute of another operation",
        of_parameter("f32[2,3]", "f32[2,3] negate(p), dimensions={0}"),
        4, "dimensions= is no attribute of negate",
    ),
    Refused(
        "no target",
        of_parameter("f32[2]", "f32[2] custom-call(p)"), 4, "has no custom_call_target=",
    ),
    Refused(
        "a key in the place of a sharding's",
        of_parameter("f32[2]", "f32[2] negate(p), sharding={tiles=[2]<=[2]}"), 4, "found 'tiles='",
    ),
    Refused(
        "a string in the place of a line",
        of_parameter("f32[2]", 'f32[2] negate(p), metadata={source_line="3"}'), 4, "an integer",
    ),
    Refused(
        "no pairs",
        of_parameter("f32[2]", "f32[2] collective-permute(p), source_target_pairs={0,1}"),
        4, "source_target_pairs=",
    ),
    # The header
    Refused(
        "an index that is no number",
        HEADER.format("input_output_alias={ {a}: (0, {0}) }"), 1, "input_output_alias=",
    ),
    Refused(
        "an alias of nothing",
        HEADER.format("input_output_alias={ {0}: (0, {0}), (0, {1}) }"), 1, "input_output_alias=",
    ),
    Refused("a donor", HEADER.format("buffer_donor={ (x, {0}) }"), 1, "buffer_donor="),
    Refused("attributes", HEADER.format("frontend_attributes={x}"), 1, "frontend_attributes="),
]  # fmt: skip
FILES = [file for file in CASES if file.name.startswith("refuse_")]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_it_is_refused_in_its_place(case: Refused) -> None:
    with pytest.raises(UnusableInput) as caught:
        parse(case.text, file="m.txt")
    assert caught.value.line == case.line
    assert case.words in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_the_compiler_refuses_it_too(case: Refused, oracle: ModuleType) -> None:
    assert oracle.oracle(case.text) is None


@pytest.mark.parametrize("case", TYPICAL_MISTAKES, ids=lambda case: case.name)
def test_indented_text_is_told_the_same(case: NamedTuple) -> None:
    text: str = case.text  # type: ignore[attr-defined]
    reported = []
    for item in (text, textwrap.indent(text, "    ", lambda _: True)):
        with pytest.raises(UnusableInput) as caught:
            parse(item)
        reported.append((caught.value.problem, caught.value.line))
    assert reported[0] == reported[1]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_is_refused_in_one_line(file: Path) -> None:
    for reads in (parse, lambda text: read(text, ParseTable()).check()):
        with pytest.raises(UnusableInput) as caught:
            reads(file.read_text())
        assert caught.value.line in (4, 5)
        assert "is the file cut" not in str(caught.value)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_compiler_refuses_the_file_too(file: Path, oracle: ModuleType) -> None:
    if "number_in_layout" not in file.name:  # an order of its own choice: docs/hlo.md
        assert oracle.oracle(file.read_text()) is None


def test_a_stage_of_a_newer_compiler_is_read() -> None:
    text = of_parameter("f32[2]", "f32[2] squash(p), direction=SIDEWAYS")
    table = ParseTable()
    read(text, table).check()
    assert table.unknown_opcodes == {"squash"}
