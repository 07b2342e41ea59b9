"""The section on memory, as text."""

from functools import partial
from io import StringIO

import pytest
from rich.console import Console

from fusionscope.findings.memory.facts import MemoryFacts
from fusionscope.findings.memory.sheet import brief, sheet
from fusionscope.words.terminal import print_sections

DUMPS = ["h100/attention", "h100/cartpole", "h100/concatenate", "cpu/loop"]


@pytest.fixture
def printed(samples):
    return partial(print_section, samples)


def print_section(samples, dump, width, show):
    console = Console(file=StringIO(), width=width)
    print_sections(show(samples.facts(dump)), console)
    return console.file.getvalue().split("\n")[:-1]


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("dump", DUMPS)
def test_the_first_screen_has_six_lines_that_fit(printed, dump, width):
    lines = printed(dump, width, brief)
    assert 1 <= len(lines) <= 6
    assert all(len(line) <= width for line in lines)


def test_without_files_one_line_of_the_whole_report_says_so(printed):
    assert not printed("h200/elementwise", 80, brief)
    (line,) = printed("h200/elementwise", 80, lambda facts: sheet(facts, None))
    assert "unknown" in line


@pytest.mark.parametrize("top", [1, None])
def test_the_whole_section_is_limited_by_top(printed, samples, top):
    lines = printed("h100/cartpole", 80, lambda facts: sheet(facts, top))
    memory = samples.facts("h100/cartpole").find(MemoryFacts)
    values = [line for line in lines if "temporary" in line or "parameter  " in line]
    assert any("--top N" in line for line in lines) == (top is not None)
    assert any("█" in line for line in lines) == (top is None)
    assert len(values) < len(memory.at_peak)


def test_the_pair_of_the_largest_saving_is_named(printed):
    text = "\n".join(printed("h100/concatenate", 100, brief))
    assert "fusing tanh.1.0 -> concatenate.1.0 would take 524 kB off the peak (pf-negative)" in text
