"""The compiler in a process that stays, for a GPU that is not there."""

from __future__ import annotations

import importlib.util

import pytest

from fusionscope.capture import compiler
from fusionscope.capture.compiler import CompilerProcess
from fusionscope.capture.targets import read_target
from fusionscope.facts.times import count_figures
from fusionscope.hlo import parse, to_text
from fusionscope.rerun.programs import find_program, own_flags
from fusionscope.versions.context import read_context

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("jax_cuda13_plugin") is None, reason="needs jax's plugin for CUDA"
    ),
]


@pytest.mark.parametrize("name", ["attention", "cartpole", "libraries"])
def test_a_scheduled_module_has_the_figures_of_the_final_one(
    samples, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = samples.module(f"h100/{name}")
    text, gpu = to_text(find_program(module)), read_context(module).gpu
    with CompilerProcess(read_target("h100"), flags=own_flags(module)) as process:
        scheduled = process.compile(text)
        monkeypatch.setattr(compiler, "_AFTER_SCHEDULING", "xla")  # all flags
        final = process.compile(text)
    assert not scheduled.problem and not final.problem
    modules = parse(scheduled.text), parse(final.text)
    scheduled_figures, figures = (count_figures(module, "gpu", gpu) for module in modules)
    assert scheduled_figures == figures
    assert "pdl_launch" not in scheduled.text  # a pass after scheduling notes it
