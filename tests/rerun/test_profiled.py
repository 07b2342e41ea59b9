"""Measured kernels of a program and of what a plan makes of it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from fusionscope import UnusableInput
from fusionscope.capture.capture import PROFILE, capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.dump.profile import EXECUTED, read_profile
from fusionscope.findings.measured.find import find_runs
from fusionscope.history.kernels import launches_of
from fusionscope.rerun.injection import Injection
from fusionscope.rerun.plans import Rest, make_plan, own_plan
from fusionscope.rerun.profiled import compare_profiles
from fusionscope.rerun.racing import Racer, race
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
    actual = variant.kernels
    assert actual is not None
    assert len(actual.gone) > len(actual.made) == 1
    # By the profile that was kept, read apart from the other side.
    (output,) = open_dump(place / "joined").modules
    runs = find_runs(output, read_profile(place / "joined" / PROFILE))
    assert len(runs.runs) == 5
    final = output.final
    assert final is not None
    names = {kernel.name for kernel in launches_of(output.read(final), "cpu")}
    assert actual.after_us == pytest.approx(sum(runs.times_of(names).values()))
    assert actual.made[0].name in names
    assert actual.made[0].time_us is not None
    assert 0 < actual.made[0].time_us <= actual.after_us
    assert sum(item.time_us or 0.0 for item in actual.gone) <= actual.before_us


@with_jax
def test_the_same_program_has_no_other_kernels(place: Path) -> None:
    (variant,) = tried(place, "again").variants
    actual = variant.kernels
    assert actual is not None
    assert (actual.gone, actual.made) == ((), ())


@with_jax
def test_an_absent_profile_is_refused(place: Path) -> None:
    (module,) = open_dump(place / "dump").modules
    with pytest.raises(UnusableInput, match="no such file or directory"):
        compare_profiles(module, module, (place / "absent", place / "absent"))


LOOP = """
import jax
from jax import lax

def step(key):
    def body(_, carried):
        key, total = carried
        key, now = jax.random.split(key)
        return key, total + jax.random.uniform(now, (64,))
    return lax.fori_loop(0, 5, body, (key, jax.numpy.zeros(64)))[1]

example_args = (jax.ShapeDtypeStruct((2,), "uint32"),)
"""


@with_jax
def test_a_program_compiled_from_its_text_has_the_names_of_the_dump(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(LOOP)
    program = read_program(f"{tmp_path / 'model.py'}:step")
    assert capture(program, read_target("cpu"), tmp_path / "dump").has_stages
    (module,) = open_dump(tmp_path / "dump").modules
    racer = Racer(module, Injection(), tmp_path / "profile")
    (actual,) = race([racer], seconds=0.01, python=sys.executable, limit_s=300)
    assert not actual.not_profiled
    final = module.final
    assert final is not None
    names = {instruction.name for instruction in module.read(final).walk()}
    profile = read_profile(tmp_path / "profile")
    (ran,) = {run.module for run in profile.runs}
    traced = {span.instruction for run in profile.runs_of(ran, "cpu") for span in run.spans}
    assert not traced <= names  # or nothing is tested
    for run in find_runs(module, profile).runs:
        assert {span.instruction for span in run.spans} <= names
    (tmp_path / "profile" / EXECUTED).unlink()
    with pytest.raises(UnusableInput, match="is another program"):
        find_runs(module, read_profile(tmp_path / "profile"))
