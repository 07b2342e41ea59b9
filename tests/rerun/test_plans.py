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
    actual = capture(program, read_target("h100"), directory / "dump")
    assert actual.has_stages
    (module,) = open_dump(actual.directory).modules
    return module


def tried(dumped: DumpedModule, directory: Path, **changes: tuple[str, ...]) -> Rerun:
    options = {"set_": (), "disable": (), "allow": (), "forbid": ()} | changes
    plan = make_plan(dumped, read_changes(*options.values()))
    return rerun(dumped, plan, directory / "rerun")


@with_cuda
def test_the_compiler_takes_its_own_plan(dumped: DumpedModule, tmp_path: Path) -> None:
    actual = rerun(dumped, own_plan(dumped), tmp_path / "rerun")
    assert actual.holds
    assert actual.is_same
    (again,) = open_dump(actual.captured.directory).modules
    assert dumped.final is not None
    assert again.final is not None
    assert find_divergence(dumped.read(dumped.final), again.read(again.final)) is None


@with_cuda
def test_rules_that_nobody_changed_make_the_compilers_plan(
    dumped: DumpedModule, tmp_path: Path
) -> None:
    actual = rerun(dumped, make_plan(dumped, Changes()), tmp_path / "rerun")
    assert actual.holds
    assert actual.is_same


@with_cuda
def test_nothing_is_fused(dumped: DumpedModule, tmp_path: Path) -> None:
    actual = rerun(dumped, make_plan(dumped, Changes(), Rest.OFF), tmp_path / "rerun")
    assert actual.holds
    assert not actual.is_same
    assert actual.variant is not None
    assert actual.variant.launches > actual.baseline.launches
    assert {item.after for item in actual.changed} == {Outcome.NOT_FUSED}


@with_cuda
def test_a_pair_that_the_compiler_refuses_is_fused(dumped: DumpedModule, tmp_path: Path) -> None:
    actual = tried(dumped, tmp_path, allow=("* -> concatenate*", "concatenate* -> *"))
    assert actual.holds
    assert actual.variant is not None
    assert actual.variant.launches < actual.baseline.launches
    assert any(item.producer.startswith("tanh") for item in actual.changed)
    assert all(item.before is Outcome.NOT_FUSED for item in actual.changed)


@with_cuda
def test_a_pair_that_the_compiler_fuses_is_kept_apart(dumped: DumpedModule, tmp_path: Path) -> None:
    actual = tried(dumped, tmp_path, forbid=("concatenate* -> *",))
    assert actual.holds
    apart = [item for item in actual.changed if item.producer.startswith("concatenate")]
    assert len(apart) > 1
    assert {item.after for item in apart} == {Outcome.NOT_FUSED}


@with_cuda
def test_a_pair_that_multi_output_fusion_fused_is_kept_apart(tmp_path: Path) -> None:
    (module,) = open_dump(DUMPS / "h100" / "elementwise").modules
    actual = tried(module, tmp_path, forbid=("tanh -> *",))
    assert actual.holds
    assert not actual.is_same
    assert (actual.requests[0].pairs, actual.requests[0].missed) == (1, 0)
    assert actual.predicted is not None
    assert actual.variant == (actual.predicted.launches, actual.predicted.bytes_moved)


@with_cuda
def test_a_pass_before_fusion_is_left_out(tmp_path: Path) -> None:
    (module,) = open_dump(DUMPS / "h100" / "softmax").modules
    changes = read_changes((), ("triton-softmax-rewriter",), (), ())
    variant = make_variant(module, "changed", changes, Rest.RULES, ())
    actual = rerun(module, variant.plan, tmp_path / "rerun", flags=variant.flags)
    assert actual.variant is not None
    assert actual.variant.launches > actual.baseline.launches
    assert actual.holds
    assert actual.requests[0].words == "disable triton-softmax-rewriter"


@with_cuda
def test_a_threshold_is_another_one(dumped: DumpedModule, tmp_path: Path) -> None:
    actual = tried(dumped, tmp_path, set_=("budget-params.limit=2",))
    assert actual.holds
    assert actual.changed


@with_cuda
@pytest.mark.parametrize(
    "output",
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
    dumped: DumpedModule, tmp_path: Path, output: str
) -> None:
    plan = own_plan(dumped)
    bad = parse(f"HloModule {plan.after.name}\n\n{output}\n")
    actual = rerun(dumped, replace(plan, after=bad), tmp_path / "rerun")
    assert not actual.holds
    assert actual.problem
    assert "\n" not in actual.problem


@with_cuda
def test_the_rest_is_left_to_the_compiler(dumped: DumpedModule, tmp_path: Path) -> None:
    options = read_changes((), (), ("* -> concatenate*",), ("concatenate* -> *",))
    plan = make_plan(dumped, options, Rest.XLA)
    actual = rerun(dumped, plan, tmp_path / "rerun")
    assert actual.holds
    assert any(item.producer.startswith("tanh") for item in actual.changed)


@with_cuda
def test_nothing_named_and_the_rest_left_to_the_compiler(
    dumped: DumpedModule, tmp_path: Path
) -> None:
    actual = rerun(dumped, make_plan(dumped, Changes(), Rest.XLA), tmp_path / "rerun")
    assert actual.holds
    assert actual.is_same


@with_cuda
def test_a_plan_of_kernels(dumped: DumpedModule, tmp_path: Path) -> None:
    names = _names(dumped, "tanh", "concatenate")
    for remaining in Rest:
        plan = make_plan(dumped, Changes(kernels=(names,)), remaining)
        actual = rerun(dumped, plan, tmp_path / remaining)
        assert actual.holds, (remaining, actual.unplanned)
        assert any(item.producer == names[0] for item in actual.changed)
        assert actual.estimates is not None
        assert all(estimate.microseconds > 0 for estimate in actual.estimates)


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
    for remaining in Rest:
        plan = make_plan(module, Changes(kernels=(names,)), remaining)
        pairs = {
            (item.producer.name, item.consumer.name): item.outcome
            for item in pairs_after(plan.before, plan.after)
        }
        assert pairs[names] in TOGETHER
        others = [outcome for pair, outcome in pairs.items() if pair != names]
        assert any(item in TOGETHER for item in others) == (remaining is Rest.RULES)


def test_only_wishes_are_granted_where_nothing_else_is_fused() -> None:
    for dump in ("cpu/concatenate", "h100/concatenate"):
        (module,) = open_dump(DUMPS / dump).modules
        options = read_changes((), (), ("* -> concatenate",), ())
        plan = make_plan(module, options, Rest.OFF)
        together = {
            item.consumer.opcode
            for item in pairs_after(plan.before, plan.after)
            if item.outcome in TOGETHER and item.producer.opcode != "constant"
        }
        assert together == {"concatenate"}


def test_barriers_stand_where_the_compiler_shall_not_fuse() -> None:
    (module,) = open_dump(DUMPS / "cpu" / "concatenate").modules
    options = read_changes((), (), (), ("concatenate -> exponential",))
    plan = make_plan(module, options, Rest.XLA)
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
        planned, output = (
            [item.outcome in TOGETHER for item in pairs_after(plan.before, after)]
            for after in (plan.after, own_plan(module).after)
        )
        assert planned == output
