"""Patterns of waste: each is found in a program that has it, and not in one that is close."""

from __future__ import annotations

import gzip
import subprocess
import sys
from dataclasses import replace
from functools import cache
from inspect import cleandoc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fusionscope.dump import open_dump
from fusionscope.dump.device import find_device
from fusionscope.explain import ModuleFacts, Selection, explain
from fusionscope.facts.suggestions import (
    Figures,
    HowTried,
    Suggestion,
    SuggestionKind,
    Suggestions,
)
from fusionscope.findings.opportunities import sheet
from fusionscope.findings.opportunities.facts import Opportunity
from fusionscope.findings.opportunities.patterns import PATTERNS
from fusionscope.findings.opportunities.patterns.recurrences import is_recurrence
from fusionscope.hlo import parse
from fusionscope.words.markdown import to_markdown

EXAMPLES = Path(__file__).parent / "wasteful"
IDS = [pattern.id for pattern in PATTERNS]


def facts_of(path: Path) -> ModuleFacts:
    with TemporaryDirectory() as folder:
        module = Path(folder) / "module_0001.jit_step.sm_9.0_gpu_after_optimizations.txt"
        module.write_bytes(gzip.decompress(path.read_bytes()))
        (facts,) = explain(open_dump(module), Selection(device=find_device("h100"))).modules
    return facts


def opportunities_in(path: Path) -> dict[str, Opportunity]:
    """The opportunities in an example, those that gain most for each id."""
    rows = facts_of(path).find_all(Opportunity)
    return {row.id: row for row in reversed(rows)}


@cache
def example(name: str) -> dict[str, Opportunity]:
    return opportunities_in(EXAMPLES / f"{name}.txt.gz")


@pytest.mark.parametrize("pattern", IDS)
def test_a_pattern_is_found_in_its_example(pattern):
    opportunity = example(pattern)[pattern]
    assert opportunity.gain_us > 0
    assert opportunity.where in opportunity.what


@pytest.mark.parametrize("pattern", IDS)
def test_a_pattern_is_not_found_in_what_is_close(pattern):
    assert pattern not in example(f"not-{pattern}")


@pytest.mark.long
@pytest.mark.compiler
def test_the_examples_are_what_the_compiler_makes_of_the_programs(tmp_path):
    subprocess.run([sys.executable, EXAMPLES / "make_examples.py", tmp_path], check=True)
    absent = [name for name in IDS if name not in opportunities_in(tmp_path / f"{name}.txt.gz")]
    wrong = [n for n in IDS if n in opportunities_in(tmp_path / f"not-{n}.txt.gz")]
    assert (absent, wrong) == ([], [])


SCORES = 8 * 16 * 1024 * 1024 * 2  # of attention, in bf16
LOGITS = 4096 * 32768 * 4


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("attention-scores", 4 * SCORES),  # written, read, and again as probabilities
        ("wide-logits", 3 * LOGITS // 2),  # written, and read twice
        ("padding", 96 * 1024 * (80 + 160) * 4),  # what pads reads and writes all
        ("sliced", 8 * 2 * 1024 * 1024 * 2),  # layers are read and written
        ("turned-operand", 2 * 64 * 256 * 128 * 4),
    ],
)
def test_bytes_that_need_not_be_moved(pattern, size):
    assert example(pattern)[pattern].bytes == pytest.approx(size, rel=0.001)


def test_results_in_the_order_of_donated_arguments_are_not_copied():
    """The gain is what the compiler saves by it."""
    times = [
        facts_of(EXAMPLES / f"{name}.txt.gz").summary.time.microseconds
        for name in ("copied-result", "not-copied-result")
    ]
    gain = example("copied-result")["copied-result"].gain_us
    assert times[0] - times[1] == pytest.approx(gain, rel=0.05)


def test_a_loop_that_a_test_ends_is_no_recurrence():
    assert "short-steps" in example("search-for-a-step")
    assert "recurrence" not in example("search-for-a-step")


def test_the_gradient_of_pooling_is_not_that_of_a_gather():
    assert "scatter-gradient" not in example("pooling")


def test_kernels_in_one_launch_save_the_launches_of_the_rest():
    opportunity = example("equal-calls")["equal-calls"]
    assert opportunity.gain_us == pytest.approx(3.0)  # of four, a microsecond each


def test_a_loop_with_a_name_is_not_among_those_with_short_steps():
    for pattern in ("recurrence", "search-loop"):
        assert "short-steps" not in example(pattern)
    assert "short-steps" in example("not-recurrence")


BODY = """HloModule m

body {{
  state = (s32[], f32[8], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  h = f32[8] get-tuple-element(state), index=1
  g = f32[8] get-tuple-element(state), index=2
  a = f32[8] get-tuple-element(state), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  double = f32[8] multiply(a, h)
  {step}
  ROOT result = (s32[], f32[8], f32[8], f32[8]) tuple(j, next, {second}, a)
}}

condition {{
  state = (s32[], f32[8], f32[8], f32[8]) parameter(0)
  ROOT less = pred[] constant(true)
}}

ENTRY main {{
  init = (s32[], f32[8], f32[8], f32[8]) parameter(0)
  ROOT loop = (s32[], f32[8], f32[8], f32[8]) while(init), condition=condition, body=body
}}
"""


@pytest.mark.parametrize(
    ("step", "second", "is_linear"),
    [
        ("next = f32[8] add(double, a)", "g", True),
        ("next = f32[8] add(double, g)", "g", True),
        ("next = f32[8] add(double, double)", "h", True),  # the state before, beside
        ("next = f32[8] add(double, g)", "h", False),  # in a circle
        ("next = f32[8] add(h, a)", "g", False),  # a sum, of which nothing is multiplied
        ("next = f32[8] multiply(double, h)", "g", False),
        ("next = f32[8] tanh(double)", "g", False),
        ("next = f32[8] divide(h, a)", "g", True),
        ("next = f32[8] divide(a, h)", "g", False),
        ("next = f32[8] multiply(h, g)", "a", True),
        ("next = f32[8] multiply(h, g)", "h", False),
    ],
)
def test_a_recurrence_is_linear_in_each_element_of_the_state(step, second, is_linear):
    module = parse(BODY.format(step=step, second=second))
    assert is_recurrence(module.entry.root) is is_linear


@pytest.mark.parametrize("pattern", PATTERNS, ids=IDS)
def test_the_page_lists_each_pattern(pattern):
    (summary, *_) = cleandoc(type(pattern).__doc__ or "").split("\n\n")
    words = " ".join(summary.split()).replace("``", "`")
    row = f"| `{pattern.id}` | {words} | {pattern.advice} |"
    assert row in (Path(__file__).parents[2] / "docs" / "headroom.md").read_text()


@pytest.mark.parametrize("is_there", [True, False])
def test_what_changes_a_loop_in_a_package_answers_the_loop_that_the_user_wrote(is_there):
    facts = facts_of(EXAMPLES / "not-recurrence.txt.gz")
    loop = example("not-recurrence")["short-steps"].where
    figures = Figures(2, 2, 2.0)
    suggestion = Suggestion(
        number=1,
        kind=SuggestionKind.RECIPE,
        change="unroll-loop",
        evidence=HowTried.REGION,
        pairs=(("broadcast.1", loop if is_there else "while.99"),),
        before=figures,
        after=replace(figures, time_us=1.0),
        sources=("site-packages/solver.py:566",),
    )
    text = "".join(to_markdown(sheet.brief(replace(facts, suggestions=Suggestions((suggestion,))))))
    assert ("try 1" in text) is is_there
