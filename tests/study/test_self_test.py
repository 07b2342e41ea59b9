"""The self-test of a device."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from fusionscope import UnusableInput
from fusionscope.cli.rerun import command
from fusionscope.rerun.injection import Injection

with_jax = pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")


def run(*words: object) -> tuple[int, str]:
    actual = CliRunner().invoke(
        command, list(map(str, words)), standalone_mode=False, catch_exceptions=False
    )
    return actual.return_value, actual.output


@with_jax
@pytest.mark.long
def test_a_cpu_holds_and_a_compiler_that_ignores_plans_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusionscope.study import self_test

    monkeypatch.setattr(self_test, "_NAMES", ("elementwise",))
    code, output = run("--self-test", "--seconds", 0, "--output", tmp_path / "cpu")
    assert code == 0
    checks = ("hook", "replay", "changed plans", "numbers", "times", "profiles", "bisect", "study")
    for name in checks:
        assert any(line.split("holds")[0].strip() == name for line in output.splitlines()), name

    def without_plan(*arguments: object, **options: object) -> Injection:
        return replace(injected(*arguments, **options), module=None)  # type: ignore[arg-type]

    from fusionscope.rerun import rerun

    injected = rerun.inject
    monkeypatch.setattr(rerun, "inject", without_plan)
    code, output = run("--self-test", "--seconds", 0, "--output", tmp_path / "ignored")
    assert code == 1
    assert re.search(r"changed plans +fails", output)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "expected a DUMP, or --self-test"),
        (("--device", "cpu"), "expected a DUMP, or --self-test"),
        (("dump", "--self-test"), "expected no DUMP"),
        (("--self-test", "--device", "nothing"), "nothing"),
    ],
)
def test_options_that_do_not_go_together(words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UnusableInput, match=problem):
        run(*words)
