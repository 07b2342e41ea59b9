"""The fixture in a project's own tests, on the real compiler."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2] / "samples" / "project"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(project)
    return project


def plugin() -> tuple[str, ...]:
    """Options of pytest, with which the plugin is there whether it is installed or not."""
    names = importlib.metadata.entry_points(group="pytest11").names
    return () if "fusionscope" in names else ("-p", "fusionscope.check.pytest_plugin")


class Pytest:
    """pytest in this process, so that what it compiles is compiled by forks."""

    def __init__(self, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._options = (*plugin(), "-p", "no:cacheprovider", "--rootdir", str(project))
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str]:
        for name in ("model", "test_fusions", "test_marked"):
            sys.modules.pop(name, None)
        code = pytest.main([*self._options, *arguments])
        return int(code), self._capsys.readouterr().out


@pytest.fixture
def run_pytest(project: Path, capsys: pytest.CaptureFixture[str]) -> Pytest:
    return Pytest(project, capsys)


@with_jax
def test_a_project_with_tests_that_pass_and_one_that_fails(run_pytest: Pytest) -> None:
    code, out = run_pytest()
    assert code == 1
    assert "1 failed, 2 passed" in out
    # In the words of the compiler's rule, and without our own frames.
    assert "not met: fused = multiply -> dot" in out
    assert "is not fused (" in out
    assert "model.py:" in out
    assert "fusions.py:" not in out.replace("test_fusions.py:", "")


@with_jax
def test_a_baseline_is_written_and_held(project: Path, run_pytest: Pytest) -> None:
    choice = ("-k", "as_it_was")
    (baseline,) = (project / "tests" / "fusionscope_baselines").iterdir()
    output = baseline.read_text()
    baseline.unlink()
    code, out = run_pytest(*choice)
    assert code == 1
    assert "--fusionscope-update writes it" in out
    assert run_pytest(*choice, "--fusionscope-update")[0] == 0
    assert baseline.read_text() == output or '"jit_normalize"' in baseline.read_text()
    assert run_pytest(*choice)[0] == 0
    # A barrier between what was one kernel.
    model = project / "model.py"
    text = model.read_text().replace(
        "jnp.sqrt(spread + 1e-5)", "jnp.sqrt(jax.lax.optimization_barrier(spread + 1e-5))"
    )
    model.write_text(text.replace("import jax.numpy", "import jax\nimport jax.numpy"))
    code, out = run_pytest(*choice)
    assert code == 1
    assert "was fused by" in out


MARKED = """
import jax.numpy as jnp
import pytest
from model import activate

@pytest.mark.fusionscope("cpu", "v5p")
def test_on_each(fusionscope):
    fusions = fusionscope(activate, jnp.ones((512, 384)), jnp.ones((384,)))
    fusions.assert_contains("tanh")
    fusions.assert_matches_baseline()

@pytest.mark.fusionscope
def test_on_one(fusionscope):
    rows = jnp.ones((512, 384))
    fusionscope(activate, rows, jnp.ones((384,)), device="cpu").assert_kernels(at_most=1)
"""


@with_jax
def test_a_test_for_each_device(project: Path, run_pytest: Pytest) -> None:
    """Of the two, only the compiler for CPUs is sure to be there."""
    (project / "tests" / "test_marked.py").write_text(MARKED)
    code, out = run_pytest("tests/test_marked.py", "--fusionscope-update", "-k", "cpu or one")
    assert code == 0, out
    assert "2 passed, 1 deselected" in out
    names = {path.name for path in (project / "tests" / "fusionscope_baselines").iterdir()}
    assert "test_marked-test_on_each-cpu.json" in names
    code, out = run_pytest("tests/test_marked.py", "-v", "--collect-only")
    assert "test_on_each[cpu]" in out
    assert "test_on_each[v5p]" in out


def test_the_fixture_and_its_option_are_told(project: Path) -> None:
    """In a process of its own."""
    (project / "empty").mkdir()  # its tests would import jax
    command = [sys.executable, "-m", "pytest", *plugin(), "-p", "no:cacheprovider"]
    for options, text in (
        ("--help", "--fusionscope-update"),
        ("--fixtures empty", "fusionscope --"),
    ):
        assert text in subprocess.check_output([*command, *options.split()], cwd=project, text=True)
