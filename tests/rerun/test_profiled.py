"""Measured kernels of a program and of what a plan makes of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from fusionscope import UnusableInput
from fusionscope.capture.capture import PROFILE, capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.dump.profile import read_profile
from fusionscope.explain.measured import find_runs
from fusionscope.history.kernels import launches_of
from fusionscope.rerun.plans import Rest, make_plan, own_plan
from fusionscope.rerun.profiled import compare_profiles
from fusionscope.rerun.trial import Trial, Variant, try_variants
from fusionscope.rules.changes import read_changes

with_jax = pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="needs jax")
PROGRAM = """
import jax, jax.numpy as jnp

def step(x):
    return jnp.exp(jnp.concatenate([jnp.sin(x), jnp.cos(x)], axis=1))

example_args = (jax.ShapeDtypeStruct((512, 512), "float32"),)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("profiled")
    (directory / "model.py").write_text(PROGRAM)
    program = read_program(f"{directory / 'model.py'}:step")
    assert capture(program, read_target("cpu"), directory / "dump").has_stages
    return directory


def tried(place: Path, name: str) -> Trial:
    (module,) = open_dump(place / "dump").modules
    plan = own_plan(module)
    if name == "joined":
        changes = read_changes((), (), ("* -> concatenate*",), ())
        plan = make_plan(module, changes, Rest.RULES)
    return try_variants(
        module, [Variant(name, plan)], place / name, baseline=own_plan(module), seconds=0
    )


@with_jax
def test_kernels_that_only_one_program_has_are_measured(place: Path) -> None:
    (variant,) = tried(place, "joined").variants
    found = variant.kernels
    assert found is not None
    assert len(found.gone) > len(found.made) == 1
    # By the profile that was kept, read apart from the other side.
    (made,) = open_dump(place / "joined").modules
    runs = find_runs(made, read_profile(place / "joined" / PROFILE))
    assert len(runs.runs) == 5
    final = made.final
    assert final is not None
    names = {kernel.name for kernel in launches_of(made.read(final), "cpu")}
    assert found.after_us == pytest.approx(sum(runs.times_of(names).values()))
    assert found.made[0].name in names
    assert found.made[0].time_us is not None
    assert 0 < found.made[0].time_us <= found.after_us
    assert sum(each.time_us or 0.0 for each in found.gone) <= found.before_us


@with_jax
def test_the_same_program_has_no_other_kernels(place: Path) -> None:
    (variant,) = tried(place, "again").variants
    found = variant.kernels
    assert found is not None
    assert (found.gone, found.made) == ((), ())


@with_jax
def test_an_absent_profile_is_refused(place: Path) -> None:
    (module,) = open_dump(place / "dump").modules
    with pytest.raises(UnusableInput, match="no such file or directory"):
        compare_profiles(module, module, (place / "absent", place / "absent"))
