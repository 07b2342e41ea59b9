"""The fixture in a project's own tests, on the real compiler."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2] / "samples" / "project"
with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(PROJECT, tmp_path / "project")
    return tmp_path / "project"


def run_pytest(project: Path, *arguments: str) -> tuple[int, str]:
    """In a process of its own, with the plugin whether it is installed or not."""
    names = importlib.metadata.entry_points(group="pytest11")
    plugin = [] if "fusionscope" in names.names else ["-p", "fusionscope.check.pytest_plugin"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, *arguments],
        cwd=project,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    return result.returncode, result.stdout


@with_jax
def test_a_project_with_tests_that_pass_and_one_that_fails(project: Path) -> None:
    code, out = run_pytest(project)
    assert code == 1
    assert "1 failed, 2 passed" in out
    # In the words of the compiler's rule, and without our own frames.
    assert "not met: fused = multiply -> dot" in out
    assert "is not fused (" in out
    assert "model.py:" in out
    assert "fusions.py:" not in out.replace("test_fusions.py:", "")


@with_jax
def test_a_baseline_is_written_and_held(project: Path) -> None:
    choice = ("-k", "as_it_was")
    (baseline,) = (project / "tests" / "fusionscope_baselines").iterdir()
    output = baseline.read_text()
    baseline.unlink()
    code, out = run_pytest(project, *choice)
    assert code == 1
    assert "--fusionscope-update writes it" in out
    assert run_pytest(project, *choice, "--fusionscope-update")[0] == 0
    assert baseline.read_text() == output or '"jit_normalize"' in baseline.read_text()
    assert run_pytest(project, *choice)[0] == 0
    # A barrier between what was one kernel.
    model = project / "model.py"
    text = model.read_text().replace(
        "jnp.sqrt(spread + 1e-5)", "jnp.sqrt(jax.lax.optimization_barrier(spread + 1e-5))"
    )
    model.write_text(text.replace("import jax.numpy", "import jax\nimport jax.numpy"))
    code, out = run_pytest(project, *choice)
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
def test_a_test_for_each_device(project: Path) -> None:
    """Of the two, only the compiler for CPUs is sure to be there."""
    (project / "tests" / "test_marked.py").write_text(MARKED)
    code, out = run_pytest(
        project, "tests/test_marked.py", "--fusionscope-update", "-k", "cpu or one"
    )
    assert code == 0, out
    assert "2 passed, 1 deselected" in out
    names = {path.name for path in (project / "tests" / "fusionscope_baselines").iterdir()}
    assert "test_marked-test_on_each-cpu.json" in names
    code, out = run_pytest(project, "tests/test_marked.py", "-v", "--collect-only")
    assert "test_on_each[cpu]" in out
    assert "test_on_each[v5p]" in out


def test_the_fixture_and_its_option_are_told(project: Path) -> None:
    assert "--fusionscope-update" in run_pytest(project, "--help")[1]
    (project / "empty").mkdir()  # its tests would import jax
    assert (
        "fusionscope --" in run_pytest(project, "--fixtures", "empty", "-p", "no:cacheprovider")[1]
    )
