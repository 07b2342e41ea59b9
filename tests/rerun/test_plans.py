"""Plans that the real compiler takes, for a card that is not here."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from fusionscope import DumpedModule, UnusableInput, parse
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.dump import open_dump
from fusionscope.graph.comparison import find_divergence
from fusionscope.history.outcomes import Outcome, pairs_after
from fusionscope.rerun.plans import Rest, make_plan, own_plan
from fusionscope.rerun.rerun import Rerun, rerun
from fusionscope.rerun.trial import make_variant
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
    plan = make_plan(dumped, read_changes(*asked.values()))
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
    found = rerun(dumped, make_plan(dumped, Changes()), tmp_path / "rerun")
    assert found.holds
    assert found.is_same


@with_cuda
def test_nothing_is_fused(dumped: DumpedModule, tmp_path: Path) -> None:
    found = rerun(dumped, make_plan(dumped, Changes(), Rest.OFF), tmp_path / "rerun")
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
def test_a_pair_that_multi_output_fusion_fused_is_kept_apart(tmp_path: Path) -> None:
    (module,) = open_dump(DUMPS / "h100" / "elementwise").modules
    found = tried(module, tmp_path, forbid=("tanh -> *",))
    assert found.holds
    assert not found.is_same
    assert (found.requests[0].pairs, found.requests[0].missed) == (1, 0)
    assert found.predicted is not None
    assert found.variant == (found.predicted.launches, found.predicted.bytes_moved)


@with_cuda
def test_a_pass_before_fusion_is_left_out(tmp_path: Path) -> None:
    (module,) = open_dump(DUMPS / "h100" / "softmax").modules
    changes = read_changes((), ("triton-softmax-rewriter",), (), ())
    variant = make_variant(module, "changed", changes, Rest.RULES, ())
    found = rerun(module, variant.plan, tmp_path / "rerun", flags=variant.flags)
    assert found.variant is not None
    assert found.variant.launches > found.baseline.launches
    assert found.holds
    assert found.requests[0].words == "disable triton-softmax-rewriter"


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
    assert found.problem
    assert "\n" not in found.problem


@with_cuda
def test_the_rest_is_left_to_the_compiler(dumped: DumpedModule, tmp_path: Path) -> None:
    asked = read_changes((), (), ("* -> concatenate*",), ("concatenate* -> *",))
    plan = make_plan(dumped, asked, Rest.XLA)
    found = rerun(dumped, plan, tmp_path / "rerun")
    assert found.holds
    assert any(each.producer.startswith("tanh") for each in found.changed)


@with_cuda
def test_nothing_named_and_the_rest_left_to_the_compiler(
    dumped: DumpedModule, tmp_path: Path
) -> None:
    found = rerun(dumped, make_plan(dumped, Changes(), Rest.XLA), tmp_path / "rerun")
    assert found.holds
    assert found.is_same


@with_cuda
def test_a_plan_of_kernels(dumped: DumpedModule, tmp_path: Path) -> None:
    names = _names(dumped, "tanh", "concatenate")
    for rest in Rest:
        plan = make_plan(dumped, Changes(kernels=(names,)), rest)
        found = rerun(dumped, plan, tmp_path / rest)
        assert found.holds, (rest, found.unplanned)
        assert any(each.producer == names[0] for each in found.changed)
        assert found.estimates is not None
        assert all(estimate.microseconds > 0 for estimate in found.estimates)


def _names(module: DumpedModule, *opcodes: str) -> tuple[str, ...]:
    """The first instruction with each of these opcodes before fusion."""
    before = make_plan(module, Changes(), Rest.XLA).before
    return tuple(
        next(
            instruction.name
            for instruction in before.entry.instructions
            if instruction.opcode == opcode
        )
        for opcode in opcodes
    )


def test_what_was_compiled_for_neither_cpu_nor_gpu_is_refused() -> None:
    (module,) = open_dump(DUMPS / "tpu-v5e" / "concatenate").modules
    with pytest.raises(UnusableInput, match="neither CPU nor GPU"):
        own_plan(module)
    with pytest.raises(UnusableInput, match="neither CPU nor GPU"):
        make_plan(module, Changes())


@pytest.mark.parametrize("dump", ["cpu/concatenate", "h100/concatenate"])
def test_a_plan_that_cannot_be_is_refused_before_the_compiler_sees_it(dump: str) -> None:
    (module,) = open_dump(DUMPS / dump).modules
    concatenate, exponential = _names(module, "concatenate", "exponential")
    for kernel, problem in (
        ((concatenate, "nothing"), "no operation before fusion"),
        ((concatenate, _names(module, "parameter")[0]), "is a parameter"),
    ):
        with pytest.raises(UnusableInput, match=problem):
            make_plan(module, Changes(kernels=(kernel,)))
    assert make_plan(module, Changes(kernels=((concatenate, exponential),))).after


def test_kernels_are_there_whoever_decides_on_the_rest() -> None:
    (module,) = open_dump(DUMPS / "cpu" / "concatenate").modules
    names = _names(module, "tanh", "concatenate")
    for rest in Rest:
        plan = make_plan(module, Changes(kernels=(names,)), rest)
        pairs = {
            (each.producer.name, each.consumer.name): each.outcome
            for each in pairs_after(plan.before, plan.after)
        }
        assert pairs[names] in TOGETHER
        others = [outcome for pair, outcome in pairs.items() if pair != names]
        assert any(each in TOGETHER for each in others) == (rest is Rest.RULES)


def test_only_wishes_are_granted_where_nothing_else_is_fused() -> None:
    for dump in ("cpu/concatenate", "h100/concatenate"):
        (module,) = open_dump(DUMPS / dump).modules
        asked = read_changes((), (), ("* -> concatenate",), ())
        plan = make_plan(module, asked, Rest.OFF)
        together = {
            each.consumer.opcode
            for each in pairs_after(plan.before, plan.after)
            if each.outcome in TOGETHER and each.producer.opcode != "constant"
        }
        assert together == {"concatenate"}


def test_barriers_stand_where_the_compiler_shall_not_fuse() -> None:
    (module,) = open_dump(DUMPS / "cpu" / "concatenate").modules
    asked = read_changes((), (), (), ("concatenate -> exponential",))
    plan = make_plan(module, asked, Rest.XLA)
    barriers = [
        instruction for instruction in plan.after.walk() if instruction.opcode == "opt-barrier"
    ]
    assert [barrier.operands[0].opcode for barrier in barriers] == ["concatenate"]
    assert [user.opcode for user in barriers[0].users] == ["exponential"]


def test_the_plan_of_rules_that_nobody_changed_fuses_what_the_compiler_did() -> None:
    for dump in ("concatenate", "elementwise", "softmax"):
        (module,) = open_dump(DUMPS / "h100" / dump).modules
        plan = make_plan(module, Changes())
        assert find_divergence(plan.before, plan.after) is not None
        planned, made = (
            [each.outcome in TOGETHER for each in pairs_after(plan.before, after)]
            for after in (plan.after, own_plan(module).after)
        )
        assert planned == made
