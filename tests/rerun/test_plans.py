"""Plans that the real compiler takes, for a card that is not here."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope import DumpedModule, UnusableInput, open_dump, parse
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.history.outcomes import Outcome, pairs_after
from fusionscope.replay.comparison import find_divergence
from fusionscope.rerun.plans import changed_plan, no_plan, own_plan
from fusionscope.rerun.rerun import Rerun, rerun
from fusionscope.rules.changes import Changes, read_changes

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
with_cuda = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="needs jax's plugin for CUDA"
)
TOGETHER = (Outcome.FUSED, Outcome.DUPLICATED)

PROGRAM = """
import jax.numpy as jnp


def step(x, y):
    wide = jnp.concatenate([jnp.tanh(x), y * 2, x + 1], axis=1)
    return jnp.exp(wide), wide.sum(axis=1), wide.max(axis=0)


example_args = (jnp.ones((512, 128)), jnp.ones((512, 64)))
"""


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> DumpedModule:
    directory = tmp_path_factory.mktemp("program")
    (directory / "model.py").write_text(PROGRAM)
    program = read_program(f"{directory / 'model.py'}:step")
    found = capture(program, read_target("h100"), directory / "dump")
    assert found.has_stages
    (module,) = open_dump(found.directory).modules
    return module


def tried(dumped: DumpedModule, directory: Path, **changes: tuple[str, ...]) -> Rerun:
    asked = {"set_": (), "disable": (), "allow": (), "forbid": ()} | changes
    plan = changed_plan(dumped, read_changes(*asked.values()))
    return rerun(dumped, plan, directory / "rerun")


@with_cuda
def test_the_compiler_takes_its_own_plan(dumped: DumpedModule, tmp_path: Path) -> None:
    found = rerun(dumped, own_plan(dumped), tmp_path / "rerun")
    assert found.holds
    assert found.is_same
    (again,) = open_dump(found.captured.directory).modules
    assert dumped.final is not None
    assert again.final is not None
    assert find_divergence(dumped.read(dumped.final), again.read(again.final)) is None


@with_cuda
def test_rules_that_nobody_changed_make_the_compilers_plan(
    dumped: DumpedModule, tmp_path: Path
) -> None:
    found = rerun(dumped, changed_plan(dumped, Changes()), tmp_path / "rerun")
    assert found.holds
    assert found.is_same


@with_cuda
def test_nothing_is_fused(dumped: DumpedModule, tmp_path: Path) -> None:
    found = rerun(dumped, no_plan(dumped), tmp_path / "rerun")
    assert found.holds
    assert not found.is_same
    assert found.variant is not None
    assert found.variant.launches > found.baseline.launches
    assert {each.after for each in found.changed} == {Outcome.NOT_FUSED}


@with_cuda
def test_a_pair_that_the_compiler_refuses_is_fused(dumped: DumpedModule, tmp_path: Path) -> None:
    found = tried(dumped, tmp_path, allow=("* -> concatenate*", "concatenate* -> *"))
    assert found.holds
    assert found.variant is not None
    assert found.variant.launches < found.baseline.launches
    assert any(each.producer.startswith("tanh") for each in found.changed)
    assert all(each.before is Outcome.NOT_FUSED for each in found.changed)


@with_cuda
def test_a_pair_that_the_compiler_fuses_is_kept_apart(dumped: DumpedModule, tmp_path: Path) -> None:
    found = tried(dumped, tmp_path, forbid=("concatenate* -> *",))
    assert found.holds
    apart = [each for each in found.changed if each.producer.startswith("concatenate")]
    assert len(apart) > 1
    assert {each.after for each in apart} == {Outcome.NOT_FUSED}


@with_cuda
def test_a_threshold_is_another_one(dumped: DumpedModule, tmp_path: Path) -> None:
    found = tried(dumped, tmp_path, set_=("budget-params.limit=2",))
    assert found.holds
    assert found.changed


@with_cuda
@pytest.mark.parametrize(
    "made",
    [
        # Another result, and a sort inside of a fusion.
        "ENTRY main { ROOT x = f32[512,128] parameter(0) }",
        """less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT }
body { x = f32[512,128] parameter(0)
  ROOT s = f32[512,128] sort(x), dimensions={1}, to_apply=less }
ENTRY main { x = f32[512,128] parameter(0)
  y = f32[512,64] parameter(1)
  ROOT k = f32[512,128] fusion(x), kind=kLoop, calls=body }""",
    ],
    ids=["shapes", "sort"],
)
def test_a_plan_that_the_compiler_does_not_take_is_told(
    dumped: DumpedModule, tmp_path: Path, made: str
) -> None:
    plan = own_plan(dumped)
    bad = parse(f"HloModule {plan.after.name}\n\n{made}\n")
    found = rerun(dumped, replace(plan, after=bad), tmp_path / "rerun")
    assert not found.holds
    assert found.captured.problem
    assert "\n" not in found.captured.problem


def test_what_was_not_compiled_for_a_gpu_is_refused() -> None:
    (module,) = open_dump(DUMPS / "cpu" / "concatenate").modules
    for plan in (own_plan, no_plan):
        with pytest.raises(UnusableInput, match="GPU"):
            plan(module)


def test_the_plan_of_rules_that_nobody_changed_fuses_what_the_compiler_did() -> None:
    for dump in ("concatenate", "elementwise", "softmax"):
        (module,) = open_dump(DUMPS / "h100" / dump).modules
        plan = changed_plan(module, Changes())
        assert find_divergence(plan.before, plan.after) is not None
        planned, made = (
            [each.outcome in TOGETHER for each in pairs_after(plan.before, after)]
            for after in (plan.after, own_plan(module).after)
        )
        assert planned == made
