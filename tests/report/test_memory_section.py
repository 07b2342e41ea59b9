"""The section on memory, as text."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fusionscope.dump.directory import open_dump
from fusionscope.explain.explain import explain_module
from fusionscope.findings.memory.facts import MemoryFacts
from fusionscope.findings.memory.sheet import brief, sheet
from fusionscope.words.terminal import print_sections

SAMPLES = Path(__file__).parents[2] / "samples/dumps"
DUMPS = ["h100/attention", "h100/cartpole", "h100/concatenate", "cpu/loop", "h200/elementwise"]


def printed(dump, width, show):
    (module,) = open_dump(SAMPLES / dump).modules
    console = Console(file=StringIO(), width=width)
    print_sections(show(explain_module(module)), console)
    return console.file.getvalue().split("\n")[:-1]


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("dump", DUMPS)
def test_the_first_screen_has_six_lines_that_fit(dump, width):
    lines = printed(dump, width, brief)
    assert 1 <= len(lines) <= 6
    assert all(len(line) <= width for line in lines)


def test_without_files_one_line_says_so():
    (line,) = printed("h200/elementwise", 80, brief)
    assert "unknown" in line


@pytest.mark.parametrize("top", [1, None])
def test_the_whole_section_is_limited_by_top(top):
    lines = printed("h100/cartpole", 80, lambda facts: sheet(facts, top))
    (module,) = open_dump(SAMPLES / "h100/cartpole").modules
    memory = explain_module(module).find(MemoryFacts)
    values = [line for line in lines if "temporary" in line or "parameter  " in line]
    assert any("--top N" in line for line in lines) == (top is not None)
    assert any("█" in line for line in lines) == (top is None)
    assert len(values) < len(memory.at_peak)


def test_the_pair_of_the_largest_saving_is_named():
    text = "\n".join(printed("h100/concatenate", 100, brief))
    assert "fusing tanh.1.0 -> concatenate.1.0 would take 524 kB off the peak (pf-negative)" in text
