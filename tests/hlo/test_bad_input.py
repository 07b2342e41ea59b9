"""Input that is not HLO, or no longer: one error, one line, the right place, and soon.

FUSIONSCOPE_MUTATIONS sets how many damaged files are tried (300 without).
"""

from __future__ import annotations

import gzip
import os
import random
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from conformance.fuzz import damage
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fusionscope.errors import UnusableInput
from fusionscope.hlo import Module, ParseTable, parse, read, to_text

SAMPLES = Path(__file__).parents[2] / "samples" / "dumps"
MUTATIONS = int(os.environ.get("FUSIONSCOPE_MUTATIONS", "300"))


def texts() -> list[str]:
    """Stages of every target, small enough to be damaged often."""
    actual = []
    for file in sorted(SAMPLES.glob("*/*/*_fusion*.txt*")) + sorted(
        SAMPLES.glob("*/*/*final*.txt*")
    ):
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        if content.startswith(b"HloModule") and len(content) < 40_000:
            actual.append(content.decode())
    return actual


TEXTS = texts()


def attempt(text: str) -> Module | UnusableInput:
    """The module or the error, which has to be fit for a terminal."""
    try:
        return parse(text, file="damaged.txt")
    except UnusableInput as error:
        message = str(error)
        assert message.startswith("damaged.txt:")
        assert message.isprintable()
        assert len(message) < 500
        assert error.line is not None and error.column is not None
        lines = re.split(r"\r\n|\n", text)
        assert 1 <= error.line <= len(lines)
        assert error.column >= 1
        return error


class Mistake(NamedTuple):
    """``line``, ``column`` and ``words`` are where and what the message has to say."""

    name: str
    text: str
    line: int
    column: int
    words: tuple[str, ...]


def of_one(lines: str) -> str:
    """A module of one computation, whose first line is the third of the text."""
    return f"HloModule m\nENTRY e {{\n{lines}\n}}\n"


TYPICAL_MISTAKES = [
    Mistake(
        "an operand that is not there",
        of_one("  a = f32[2] parameter(0)\n  ROOT b = f32[2] add(a, c)"),
        4, 3, ("b reads 'c'", "not defined above"),
    ),
    Mistake(
        "an operand that comes later",
        of_one("  ROOT b = f32[2] negate(a)\n  a = f32[2] parameter(0)"),
        3, 3, ("b reads 'a'", "not defined above"),
    ),
    Mistake(
        "an element that the tuple does not have",
        of_one("  a = (f32[3]) parameter(0)\n  ROOT b = f32[3] negate(a#1)"),
        4, 3, ("b reads a#1", "a is (f32[3])"),
    ),
    Mistake(
        "an element of what is no tuple",
        of_one("  a = f32[3] parameter(0)\n  ROOT b = f32[3] negate(a#0)"),
        4, 3, ("b reads a#0", "a is f32[3]"),
    ),
    Mistake(
        "too many operands",
        of_one("  a = f32[2] parameter(0)\n  ROOT b = f32[2] negate(a, a)"),
        4, 3, ("negate b has 2 operands", "expected 1"),
    ),
    Mistake(
        "too few operands",
        of_one("  a = f32[2] parameter(0)\n  ROOT b = f32[2] add(a)"),
        4, 3, ("add b has 1 operands", "expected 2"),
    ),
    Mistake(
        "two of one name",
        of_one("  a = f32[2] parameter(0)\n  ROOT a = f32[2] negate(a)"),
        4, 3, ("a is defined twice",),
    ),
    Mistake(
        "two roots",
        of_one("  ROOT a = f32[2] parameter(0)\n  ROOT b = f32[2] negate(a)"),
        4, 3, ("b is a second ROOT",),
    ),
    Mistake(
        "an operand of another shape than declared",
        of_one("  %a = f32[2] parameter(0)\n  ROOT %b = f32[2] add(f32[3] %a, f32[2] %a)"),
        4, 3, ("b declares its operand a as f32[3]", "that is f32[2]"),
    ),
    Mistake(
        "a result of another shape than declared",
        "HloModule m\n\nENTRY %e (a: f32[3]) -> f32[4] {\n  ROOT %a = f32[3] parameter(0)\n}\n",
        3, 3, ("e declares its result as f32[4]", "a is f32[3]"),
    ),
    Mistake(
        "a call of nothing",
        of_one("  a = f32[2] parameter(0)\n  ROOT b = f32[2] fusion(a), kind=kLoop, calls=%f"),
        4, 3, ("b calls f", "not defined above"),
    ),
    Mistake(
        "a call of what comes later",
        "HloModule m\nENTRY e {\n  ROOT b = f32[] fusion(), kind=kLoop, calls=f\n}\n"
        "f {\n  ROOT c = f32[] constant(1)\n}\n",
        3, 3, ("b calls f", "not defined above"),
    ),
    Mistake(
        "waiting for nothing",
        of_one("  ROOT a = f32[2] parameter(0), control-predecessors={x}"),
        3, 3, ("a waits for x", "not defined above"),
    ),
    Mistake(
        "two computations of one name",
        "HloModule m\nf {\n  ROOT a = f32[] constant(1)\n}\nf {\n  ROOT a = f32[] constant(1)\n}\n",
        5, 1, ("computation f is defined twice",),
    ),
    Mistake(
        "two entries",
        "HloModule m\nENTRY f {\n  ROOT a = f32[] constant(1)\n}\n"
        "ENTRY g {\n  ROOT a = f32[] constant(1)\n}\n",
        5, 1, ("second ENTRY",),
    ),
    Mistake("an empty computation", "HloModule m\nENTRY f {\n}\n", 2, 1, ("f is empty",)),
    Mistake(
        "no equals sign",
        of_one("  a f32[2] parameter(0)"),
        3, 5, ("found 'f32'", "expected '='"),
    ),
    Mistake(
        "a name of two words",
        of_one("  ROOT my value = f32[3] parameter(0)"),
        3, 11, ("found 'value'", "expected '='"),
    ),
    Mistake(
        "a bracket of a shape that is not closed",
        of_one("  ROOT a = f32[2 parameter(0)"),
        4, 1, ("found '}'", "expected ']' for the bracket of line 3"),
    ),
    Mistake(
        "an unknown element type",
        of_one("  ROOT a = float32[2] parameter(0)"),
        3, 12, ("unknown element type 'float32'",),
    ),
    Mistake(
        "a layout of another rank",
        of_one("  ROOT a = f32[2,3]{0} parameter(0)"),
        3, 12, ("'f32[2,3]{0}' orders 1 dimensions", "expected 2"),
    ),
    Mistake(
        "a negative size",
        of_one("  ROOT a = f32[-2] parameter(0)"),
        3, 12, ("found 'f32[-2]'", "expected a shape"),
    ),
    Mistake(
        "a size of too many digits",
        of_one("  ROOT a = f32[99999999999999999999] parameter(0)"),
        3, 12, ("a number of more than 18 digits in 'f32[9999",),
    ),
    Mistake(
        "no comma before an attribute",
        of_one("  a = f32[2] parameter(0)\n  ROOT b = f32[2] reverse(a) dimensions={0}"),
        4, 30, ("found 'dimensions='", "expected ','"),
    ),
    Mistake(
        "an attribute that is no list of integers",
        of_one("  a = f32[2] parameter(0)\n  ROOT b = f32[2] reverse(a), dimensions={x}"),
        4, 43, ("found 'x'", "expected '}' or an integer"),
    ),
    Mistake(
        "an attribute twice",
        of_one("  ROOT a = f32[2] iota(), iota_dimension=0, iota_dimension=0"),
        3, 1, ("found iota_dimension= twice",),
    ),
    Mistake(
        "a string that is not closed",
        of_one('  ROOT a = f32[2] parameter(0), metadata={op_name="x}'),
        3, 51, ("quotation mark that nothing closes",),
    ),
    Mistake(
        "a string that begins and does not end",
        of_one('  a = f32[2] parameter(0)\n  ROOT b = f32[2] iota(), iota_dimension=0"x'),
        4, 43, ("quotation mark that nothing closes",),
    ),
    Mistake(
        "a comment that is not closed",
        of_one("  ROOT a = f32[2] parameter(0)") + "/* open\n",
        5, 1, ("found '/* open'",),
    ),
    Mistake(
        "a literal that is too long",
        of_one("  ROOT a = f32[3] constant({1,2,3,4})"),
        3, 19, ("a: '{1,2,3,4}' does not fill f32[3]",),
    ),
    Mistake(
        "a literal of another type",
        of_one("  ROOT a = s32[] constant(1.5)"),
        3, 18, ("a: found '1.5'", "expected one s32"),
    ),
    Mistake(
        "a literal that its type does not hold",
        of_one("  ROOT a = s8[2] constant({1, 200})"),
        3, 18, ("a: 200 is out of the range of s8",),
    ),
    Mistake(
        "a number that rounds to infinity",
        of_one("  ROOT a = f16[] constant(70000)"),
        3, 18, ("a: 70000 is out of the range of f16",),
    ),
    Mistake(
        "a parameter without a number",
        of_one("  ROOT a = f32[3] parameter(x)"),
        3, 19, ("found 'x'", "expected the number of a parameter"),
    ),
    Mistake(
        "no arrow",
        "HloModule m\nENTRY e (a: f32[3]) f32[3] {\n  ROOT a = f32[3] parameter(0)\n}\n",
        2, 21, ("found 'f32'", "expected '->'"),
    ),
    Mistake(
        "a header that says maybe",
        "HloModule m, is_scheduled=maybe\nENTRY e {\n  ROOT a = f32[] parameter(0)\n}\n",
        1, 27, ("found 'maybe'", "expected false or true"),
    ),
    Mistake(
        "a row that is no row",
        'HloModule m\n\nFileNames\n1 "a.py"\n2 b.py\n\nENTRY e { ROOT a = f32[] parameter(0) }\n',
        5, 1, ("found '2 b.py'", "expected a row such as"),
    ),
    Mistake(
        "a brace too many",
        of_one("  ROOT a = f32[2] parameter(0)\n}"),
        5, 1, ("found '}'", "which nothing opens"),
    ),
    Mistake(
        "a file that is cut",
        "HloModule m\n\n%f (a: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  ROOT %b = f32[] neg",
        5, 22, ("the text ends inside computation f", "is the file cut?"),
    ),
    Mistake(
        "a shape that cannot be told",
        of_one("  a = f32[2,3] parameter(0)\n  ROOT b = reshape(a)"),
        4, 12, ("found 'reshape'", "expected '(' or an element type such as f32["),
    ),
    Mistake(
        "a number in two parts",
        of_one(
            "  a = f32[8] parameter(0)\n"
            "  ROOT b = f32[8] negate(a), sharding={devices=[1 1]<=[11]}"
        ),
        4, 51, ("b: sharding={devices=[1 1]<=[11]}: found '1', expected ',' or ']'",),
    ),
    Mistake(
        "a number that a comment parts",  # at the attribute
        of_one(
            "  a = f32[8] parameter(0)\n"
            "  ROOT b = f32[8] negate(a), sharding={devices=[1/*c*/1]<=[11]}"
        ),
        4, 30, ("b: sharding=", "found '1', expected ',' or ']'"),
    ),
    Mistake(
        "a word in the header",
        "HloModule m, input_output_alias={ {a}: (0, {0}) }\n"
        "ENTRY e {\n  ROOT a = f32[2] parameter(0)\n}\n",
        1, 36, ("input_output_alias=", "found 'a'"),
    ),
    Mistake(
        "text behind the module",
        of_one("  ROOT a = f32[2] parameter(0)") + "and so on\n",
        5, 1, ("found 'and so on'", "expected HLO text"),
    ),
    Mistake("nothing", "", 1, 1, ("no computation found", "expected HLO text")),
    Mistake("only a header", "HloModule m\n", 1, 1, ("no computation found", "expected HLO text")),
    Mistake("another language", "import jax\n", 1, 1, ("found 'import jax'", "expected HLO text")),
    Mistake(
        "MLIR",
        "#loc = loc(unknown)\nmodule @jit_f attributes {a = 1 : i32} {\n"
        "  func.func public @main() {\n    return\n  }\n}\n",
        1, 1, ("found MLIR", "expected HLO text", "as_text('hlo')"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("mistake", TYPICAL_MISTAKES, ids=lambda mistake: mistake.name)
def test_typical_mistakes_are_told_in_their_place(mistake: Mistake) -> None:
    error = attempt(mistake.text)
    assert isinstance(error, UnusableInput)
    assert (error.line, error.column) == (mistake.line, mistake.column), error
    for words in mistake.words:
        assert words in str(error)


# The compiler's own parser drops such operands, although the printed module has them.
@pytest.mark.parametrize("operands", ["f32[2]", "a, f32[2]{0}", "b(f32[2])", ","])
def test_an_operand_without_a_name_is_refused(operands: str) -> None:
    error = attempt(
        of_one(
            "  a = f32[2] parameter(0)\n"
            f'  ROOT c = f32[2] custom-call({operands}), custom_call_target="t"'
        )
    )
    assert isinstance(error, UnusableInput)
    assert error.line == 4
    assert "c has an operand without a name" in error.problem


# The compiler's own parser ends the process at these, so it is not asked.
@pytest.mark.parametrize(
    "lines",
    [
        "  a = f32[] parameter(0)\n  ROOT b = f32[] parameter(2)",
        "  a = f32[] parameter(0)\n  ROOT b = f32[] parameter(0)",
        "  ROOT a = f32[] constant(true)",
        "  ROOT a = token[] constant(0)",
    ],
)
def test_what_ends_the_compiler_is_refused(lines: str) -> None:
    assert isinstance(attempt(of_one(lines)), UnusableInput)


@pytest.mark.parametrize("mistake", TYPICAL_MISTAKES, ids=lambda mistake: mistake.name)
def test_the_compiler_refuses_it_too(mistake: Mistake) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    with pytest.raises(Exception, match=r"Syntax error|INVALID_ARGUMENT"):
        hlo.hlo_module_from_text(mistake.text)


# Damage


def damaged(text: str, chance: random.Random) -> str:
    """``text`` after one to three accidents."""
    return damage(text.encode(), chance).decode("utf-8", "replace")


@pytest.mark.parametrize("seed", range(10))
def test_damaged_files(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(max(1, MUTATIONS // 10)):
        actual = attempt(damaged(chance.choice(TEXTS), chance))
        if isinstance(actual, Module):
            assert parse(to_text(actual)) == actual


@pytest.mark.parametrize("gap", [" ", "/*c*/", "\n"])
def test_a_number_in_two_parts_is_refused(gap: str) -> None:
    """Sizes, layouts, groups, tiles, slices: no list of numbers has two without a comma."""
    chance = random.Random(gap)
    for _ in range(MUTATIONS // 5):
        text = chance.choice(TEXTS)
        lines = text.split("\n")
        numbers = [
            (index, number.start())
            for index, line in enumerate(lines)
            if line.startswith(("  ", "%", "ENTRY")) and '"' not in line and "constant" not in line
            for number in re.finditer(r"(?<=[\[{,(:])\d{2,}(?=[\]},:)])", line)
        ]
        index, place = chance.choice(numbers)
        line = lines[index]
        lines[index] = f"{line[: place + 1]}{gap}{line[place + 1 :]}"
        assert isinstance(attempt("\n".join(lines)), UnusableInput), lines[index]


def test_a_damaged_stage_leaves_nothing_in_the_table() -> None:
    chance = random.Random(0)
    text = max(TEXTS, key=len)
    table = ParseTable()
    for _ in range(20):
        try:
            read(damaged(text, chance), table)
        except UnusableInput:
            continue
    assert read(text, table) == parse(text)


PIECES = """HloModule ENTRY ROOT m e % = , ( ) { } [ ] " ' \\ / * # : -> <= f32[2] f32[]
    (f32[2],s32[]) {1,0} {0} add negate parameter(0) constant(1) constant({...}) tuple a b %a %b
    a#0 1 -1 inf
    calls=%e to_apply={ metadata={op_name="x"} sharding={replicated} /*index=5*/ // FileNames
    """.split()
PIECES += [" ", "\n", "\r\n", "\n  ", "\n}\n", " = ", "\x00", "\x1b[31m", "\u202e", "\ud800", "é"]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=40).map("".join))
@example("HloModule m\nENTRY e {\n  ROOT a = f32[] constant(1)\n}")
@example("\n}")
def test_any_text_is_read_or_refused(text: str) -> None:
    actual = attempt(text)
    if isinstance(actual, Module):
        assert parse(to_text(actual)) == actual


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused(content: bytes) -> None:
    assert isinstance(attempt(content.decode("utf-8", "replace")), UnusableInput)


# Size: each of these would take hours if some step took the square of it.

HEAD = "HloModule m\n\nENTRY e {\n"
PLACES = (
    "",
    "HloModule m, ",
    f"{HEAD}  ROOT a = ",
    f"{HEAD}  a = f32[] add(",
    f"{HEAD}  a = f32[9] constant(",
    f"{HEAD}  a = f32[] add(b, c), ",
    f"{HEAD}  a = f32[] add(b, c), d={{",
    f'{HEAD}  a = f32[] add(b, c), metadata={{op_name="',
    f"{HEAD}  a = f32[] add(b, c), calls=",
    f"{HEAD}  a = f32[] constant(1)\n}}\nb",
)
UNITS = ("{", "(", "[", '"', '\\"', "/*", "a", "1", " ", ",", "a={", "{}", "(f32[],")


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("unit", UNITS)
def test_a_long_line(place: str, unit: str) -> None:
    assert isinstance(attempt(place + unit * (100_000 // len(unit))), UnusableInput)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["\x00", "}", "\n", "\n}", "{\n", "a = f32[] b(c)\n", "//", "'"])
def test_a_very_long_text(unit: str) -> None:
    assert isinstance(attempt(HEAD + unit * (1_000_000 // len(unit))), UnusableInput)


@pytest.mark.slow
def test_a_chain_of_a_hundred_thousand() -> None:
    lines = ["  x.0 = f32[8] parameter(0)"]
    lines += [f"  x.{n} = f32[8] negate(x.{n - 1})" for n in range(1, 100_000)]
    module = parse(of_one("\n".join(lines)))
    assert module.instruction_count == 100_000
    last = module.entry.root
    assert last.name == "x.99999"
    assert last.operands[0].operands[0].name == "x.99997"


def test_a_tuple_of_a_hundred_thousand() -> None:
    shape = f"({', '.join(['f32[]'] * 100_000)})"
    module = parse(of_one(f"  ROOT t = {shape} parameter(0)"))
    assert len(module.entry.root.shape.elements) == 100_000


def test_a_thousand_operations_inside_each_other() -> None:
    inside = "x"
    for _ in range(1000):
        inside = f"negate({inside})"
    module = parse(of_one(f"  x = f32[] parameter(0)\n  ROOT r = f32[] negate({inside})"))
    assert module.instruction_count == 1002
    assert len(module.entry.root.operands) == 1


@pytest.mark.parametrize("depth", [100, 10_000])
def test_tuples_deeper_than_any_compiler_makes_them(depth: int) -> None:
    error = attempt(of_one(f"  ROOT t = {'(' * depth}f32[]{')' * depth} parameter(0)"))
    assert isinstance(error, UnusableInput)
