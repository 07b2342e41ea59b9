"""What was asked for is looked up in the final module, whatever the plan was."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope import DumpedModule, UnusableInput
from fusionscope.dump import open_dump
from fusionscope.history.outcomes import TOGETHER
from fusionscope.rerun.plans import Rest, make_plan
from fusionscope.rerun.programs import require_final
from fusionscope.rerun.requests import Request, find_made, look_up
from fusionscope.rerun.trial import make_variant
from fusionscope.rules.changes import read_changes
from fusionscope.what_if.changed_passes import names_pair

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"


def sample(name: str) -> DumpedModule:
    (module,) = open_dump(DUMPS / name).modules
    return module


def in_its_own_dump(name: str, option: str, pattern: str) -> Request:
    """What is said where the compiler made of a plan what it made by itself."""
    options = {"set_": (), "disable": (), "allow": (), "forbid": ()} | {option: (pattern,)}
    module = sample(name)
    plan = make_plan(module, read_changes(**options))
    (actual,) = look_up(plan, find_made(plan, module, require_final(module)), module)
    return actual


def test_a_pair_that_is_fused_all_the_same() -> None:
    """The final module of this dump has one kernel, with two results and tanh in it."""
    actual = in_its_own_dump("h100/elementwise", "forbid", "tanh -> *")
    assert actual.words == "forbid tanh -> *"
    assert actual.problem.startswith("tanh.1.0 -> mul.14.0 is fused by ")
    assert (actual.pairs, actual.missed) == (1, 1)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("h100/elementwise", "tanh -> *"),  # by multi-output fusion
        ("h100/softmax", "sub.6 -> sub.7"),  # by the rewriter of softmax, before instructions
        ("h100/softmax", "sub.7 -> exp.1"),  # are renamed, and by priority fusion
        ("h100-without-triton-gemm/projections", "constant.44.0 -> erfc.98.0"),  # a constant
        ("cpu/attention", "sub.7 -> exp.1"),  # by the rewriter for libraries
        ("cpu/attention", "constant.12 -> *"),
        ("cpu-multi-output/reductions", "mul* -> *"),
    ],
)
def test_a_forbidden_pair_is_kept_apart_by_every_pass(name: str, pattern: str) -> None:
    module = sample(name)
    plan = make_plan(module, read_changes((), (), (), (pattern,)))
    local = plan.passes.pairs_in(("final", require_final(module)))
    planned = plan.passes.pairs_in(("planned", plan.after))
    (expected,) = plan.changes.forbidden
    were_fused = [pair.outcome in TOGETHER for pair in local if names_pair(expected, pair)]
    assert any(were_fused)
    assert not any(pair.outcome in TOGETHER for pair in planned if names_pair(expected, pair))


@pytest.mark.parametrize(
    ("name", "option", "pattern", "why"),
    [
        ("cpu/attention", "allow", "exp.1 -> reduce_sum.7", "lib-one-user"),
        ("cpu/loop", "allow", "add.4 -> sub.1", "base-globally-unfusible"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_rule(
    name: str, option: str, pattern: str, why: str
) -> None:
    options = {"set_": (), "disable": (), "allow": (), "forbid": ()} | {option: (pattern,)}
    with pytest.raises(UnusableInput, match=rf"cannot {option} .* is not fused \({why}"):
        make_plan(sample(name), read_changes(**options))


def test_a_pair_that_is_apart_all_the_same() -> None:
    """As the compiler made it: the cost model refused both."""
    actual = in_its_own_dump("h100/concatenate", "allow", "tanh -> concatenate")
    assert actual.problem.startswith("tanh.1.0 -> concatenate.1.0 is not fused")


@pytest.mark.parametrize(
    ("name", "option", "pattern"),
    [
        ("h100/concatenate", "forbid", "tanh -> concatenate"),
        ("h100/softmax", "allow", "exponential -> divide"),
        ("cpu/concatenate", "forbid", "concatenate -> *"),
    ],
)
def test_what_is_so_is_done(name: str, option: str, pattern: str) -> None:
    assert in_its_own_dump(name, option, pattern).problem == ""


@pytest.mark.parametrize(
    ("name", "changes", "remaining"),
    [
        ("h100/softmax", ((), ("cpu-concat",), (), ()), Rest.RULES),
        ("h100/softmax", (("cpu-concat.max_operands=3",), (), (), ()), Rest.RULES),
        ("cpu/softmax", ((), ("pf-two-reduces",), (), ()), Rest.RULES),
        ("h100/softmax", ((), ("pf-two-reduces",), (), ()), Rest.XLA),
    ],
)
def test_what_has_no_part_in_a_plan_is_refused(
    name: str, changes: tuple[tuple[str, ...], ...], remaining: Rest
) -> None:
    with pytest.raises(UnusableInput, match="does not affect this plan") as reported:
        make_variant(sample(name), "changed", read_changes(*changes), remaining, ())
    assert "\n" not in str(reported.value)


@pytest.mark.parametrize(
    ("name", "left_out", "is_replayed"),
    [
        ("h100/softmax", "triton-softmax-rewriter", True),
        ("h100/dense", "triton-gemm-rewriter", False),  # what follows it is not replayed
        ("h100/softmax", "fusion-block-level-rewriter", False),  # runs on the result of a plan
    ],
)
def test_a_pass_is_left_out_by_a_plan_or_else_by_the_compiler_itself(
    name: str, left_out: str, is_replayed: bool
) -> None:
    changes = read_changes((), (left_out,), (), ())
    actual = make_variant(sample(name), "changed", changes, Rest.RULES, ())
    assert (actual.plan is not None) is is_replayed
    assert actual.flags == (() if is_replayed else (f"--xla_disable_hlo_passes={left_out}",))
