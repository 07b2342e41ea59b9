"""Plan files: what is written is read again."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fusionscope import Changes, PairPattern, UnusableInput
from fusionscope.rules.plan_files import PlanFile, read_plan, write_plan

names = st.from_regex(r"[a-z][a-z0-9._\-*?]{0,12}", fullmatch=True)
patterns = st.lists(st.builds(PairPattern, names, names), max_size=3).map(tuple)
# What TOML writes with escapes, too: quotes, line ends, control characters.
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
changes = st.builds(
    Changes,
    thresholds=st.lists(
        st.tuples(st.just("cpu-concat"), st.just("max_operands"), st.integers(0, 99)), max_size=1
    ).map(tuple),
    disabled=st.lists(st.sampled_from(["cpu-code-dup", "fusion"]), max_size=2).map(tuple),
    allowed=patterns,
    forbidden=patterns,
    kernels=st.lists(st.lists(texts, min_size=1, max_size=3).map(tuple), max_size=2).map(tuple),
)


@pytest.mark.slow
@given(changes, st.none() | texts)
@example(Changes(kernels=(("name\x7f",),)), '\x7f\\"\r\n')
def test_what_is_written_is_read_again(some: Changes, module: str | None) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder).resolve() / "plan.toml"
        plan = PlanFile(some, module, file.parent / "dump", file.parent / "program.hlo")
        file.write_text(write_plan(plan, file), encoding="utf-8")
        assert read_plan(file, takes_program=True) == plan


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("colour = 1", ":1: unknown key 'colour', expected one of set, disable"),
        ("disabel = ['fusion']", ":1: unknown key 'disabel', did you mean 'disable'?"),
        ("# a plan\nallow = 'a -> b'", ":2: allow = 'a -> b', expected a list"),
        ("forbid = [\n'a -> b',\n3]", r":1: forbid\[1\] = 3, expected a text"),
        ("module = 3", ":1: module = 3, expected a text"),
        ("set = 3", ":1: set = 3, expected a table"),
        ("[set]\ncpu-concat.max_operands = 'x'", ":1: set holds a text, expected a whole number"),
        (
            "[set]\n'cpu-concat.max_operands' = true",
            ":1: set holds true or false, expected a whole",
        ),
        ("kernel = 3", ":1: kernel = 3, expected a list"),
        ("\n[[kernel]]\nname = 'x'", ":3: unknown key 'name', expected one of members"),
        ("\n[[kernel]]", r":2: 'members' is missing in kernel"),
        (
            "[[kernel]]\nmembers = ['a']\n[[kernel]]\nmembers = []",
            ":4: .* a list that is not empty",
        ),
        ("module = 'm'\nallow = ['a']", ":2: .* expected 'PRODUCER -> CONSUMER'"),
        ("module = 'm'\n[set]\ncpu-concat.depth = 3", ":2: .* has no threshold 'depth'"),
        ("disable = ['cpu-conca']", ":1: no rule is called 'cpu-conca'"),
        ("module = 'm'\nprogram = 'm.hlo'", ":2: the plan is for a rewritten program"),
        ("x = ", ":1: not TOML: Invalid value$"),
        ("x = '''\n\"\\q\" = 3\n'''\nset = 3", ":1: unknown key 'x'"),
        (f"x = {'9' * 5000}", ": not TOML"),
        ("x = " + "[" * 10_000, ": not TOML"),
    ],
)
def test_mistakes_are_told_with_file_and_line(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(text)
    with pytest.raises(UnusableInput, match=problem) as reported:
        read_plan(file)
    assert "\n" not in str(reported.value)


def test_a_pass_can_be_left_out_but_one() -> None:
    from fusionscope.rules.changes import read_changes

    assert read_changes((), ("dot-library-rewriter",), (), ()).disabled == ("dot-library-rewriter",)
    with pytest.raises(UnusableInput, match="without this pass results are wrong"):
        read_changes((), ("fusion-wrapper",), (), ())
