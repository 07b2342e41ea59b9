"""Command lines that `explain` prints, run as printed: each does what was predicted."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from conformance.follow_advice import Advice, advice_on, follow

from fusionscope.advise.candidates import read_candidate
from fusionscope.advise.suggest import suggester
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.explain import explain
from fusionscope.explain.selection import EVERYTHING
from fusionscope.facts.suggestions import SuggestionKind
from fusionscope.rerun.plans import make_plan

ROOT = Path(__file__).resolve().parents[2]
DUMPS = ROOT / "samples" / "dumps"
PROGRAMS = ROOT / "tools" / "conformance" / "programs"
QUICK = ("cpu/reductions", "h100/concatenate")
with_cuda = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="needs jax's plugin for CUDA"
)


def folders(*names: str) -> list[Path]:
    return [path for name in names for path in sorted((DUMPS / name).iterdir())]


def name_of(dump: Path) -> str:
    return "/".join(dump.parts[-2:])


def kind_of(advice: Advice) -> tuple[str, ...]:
    """The command and its options."""
    return (advice.words[1], *(word for word in advice.words if word.startswith("--")))


def follow_kinds(dump: Path) -> int:
    """Run a command of each kind, and return how many there are of all kinds."""
    commands, problem = advice_on(dump)
    assert not problem
    for advice in {kind_of(advice): advice for advice in commands}.values():
        followed = follow(advice, 0.1)
        assert not followed.problem, (advice.command, followed)
    return len(commands)


@pytest.mark.slow
@pytest.mark.compiler
@with_cuda
@pytest.mark.parametrize(
    "dump",
    [
        pytest.param(dump, marks=[pytest.mark.long] * (name_of(dump) not in QUICK))
        for dump in folders("cpu", "h100")
    ],
    ids=name_of,
)
def test_samples(dump: Path) -> None:
    follow_kinds(dump)


@pytest.mark.slow
@pytest.mark.compiler
@with_cuda
def test_names_are_those_before_a_pass_that_renames(tmp_path: Path) -> None:
    """A pass renames everything after the fusion of a softmax."""
    shapes = ("f32[5,120,777]", "f32[5,120]")
    program = read_program(f"{PROGRAMS / 'sums.py'}:temperatures", shapes)
    captured = capture(program, read_target("h100"), tmp_path / "a dump", python=sys.executable)
    assert follow_kinds(captured.directory) > 1
    suggest = suggester(EVERYTHING, is_limited=False)
    (facts,) = explain(open_dump(captured.directory), suggest=suggest).modules
    suggestions = facts.suggestions
    assert suggestions is not None
    assert any(
        "--allow" in suggestion.change
        for suggestion in (*suggestions.helpful, *suggestions.rejected)
    )


@pytest.mark.parametrize(
    "dump",
    [
        pytest.param(dump, marks=[pytest.mark.slow, pytest.mark.long] * (dump.name == "cartpole"))
        for dump in folders("cpu", "h100", "a100")
    ],
    ids=lambda dump: f"{dump.parts[-2:]}",
)
def test_a_plan_predicts_what_is_printed(dump: Path) -> None:
    """Without a compiler: the plan that rerun makes of each change of rules."""
    opened = open_dump(dump)
    (module,) = opened.modules
    (facts,) = explain(opened, suggest=suggester(EVERYTHING, is_limited=False)).modules
    suggestions = facts.suggestions
    assert suggestions is not None
    for suggestion in (*suggestions.helpful, *suggestions.unmeasured, *suggestions.rejected):
        if suggestion.kind is SuggestionKind.RULE:
            plan = make_plan(module, read_candidate(suggestion).changes)
            assert plan.predicted == suggestion.after
