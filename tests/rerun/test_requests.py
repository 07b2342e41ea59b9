"""What was asked for is looked up in the final module, whatever the plan was."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope import DumpedModule, UnusableInput
from fusionscope.dump import open_dump
from fusionscope.rerun.plans import Rest, make_plan
from fusionscope.rerun.programs import require_final
from fusionscope.rerun.requests import Request, look_up
from fusionscope.rerun.trial import make_variant
from fusionscope.rules.changes import read_changes

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"


def sample(name: str) -> DumpedModule:
    (module,) = open_dump(DUMPS / name).modules
    return module


def in_its_own_dump(name: str, option: str, pattern: str) -> Request:
    """What is said where the compiler made of a plan what it made by itself."""
    asked = {"set_": (), "disable": (), "allow": (), "forbid": ()} | {option: (pattern,)}
    module = sample(name)
    (found,) = look_up(make_plan(module, read_changes(**asked)), module, require_final(module))
    return found


def test_a_pair_that_a_later_pass_fuses_all_the_same() -> None:
    """Priority fusion keeps it apart, and multi-output fusion joins the kernels of both: the final
    module of this dump has one kernel, with two results and tanh in it."""
    found = in_its_own_dump("h100/elementwise", "forbid", "tanh -> *")
    assert found.words == "forbid tanh -> *"
    assert found.problem == "tanh.1.0 -> mul.14.0 is fused by multi_output_fusion"


def test_a_pair_that_is_apart_all_the_same() -> None:
    """As the compiler made it: the cost model refused both."""
    found = in_its_own_dump("h100/concatenate", "allow", "tanh -> concatenate")
    assert found.problem.startswith("tanh.1.0 -> concatenate.1.0 is not fused")


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
    ("name", "changes", "rest"),
    [
        ("h100/softmax", ((), ("cpu-concat",), (), ()), Rest.RULES),
        ("h100/softmax", (("cpu-concat.max_operands=3",), (), (), ()), Rest.RULES),
        ("h100/softmax", ((), ("triton-softmax-rewriter",), (), ("exp* -> *",)), Rest.RULES),
        ("cpu/softmax", ((), ("pf-two-reduces",), (), ()), Rest.RULES),
        ("h100/softmax", ((), ("pf-two-reduces",), (), ()), Rest.XLA),
    ],
)
def test_what_has_no_part_in_a_plan_is_refused(
    name: str, changes: tuple[tuple[str, ...], ...], rest: Rest
) -> None:
    with pytest.raises(UnusableInput, match="does not affect this plan") as told:
        make_variant(sample(name), "changed", read_changes(*changes), rest, ())
    assert "\n" not in str(told.value)


def test_a_pass_before_a_plan_is_left_out_by_the_compiler_itself() -> None:
    changes = read_changes((), ("triton-softmax-rewriter",), (), ())
    found = make_variant(sample("h100/softmax"), "changed", changes, Rest.RULES, ())
    assert found.plan is None
    assert found.flags == ("--xla_disable_hlo_passes=triton-softmax-rewriter",)
