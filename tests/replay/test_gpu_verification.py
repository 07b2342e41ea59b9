"""The replay of priority fusion takes the compiler's steps, on every GPU dump that is kept here."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from fusionscope.dump import Dump, open_dump
from fusionscope.dump.fusion_passes import PRIORITY_FUSION
from fusionscope.passes.gpu.priority_fusion.record import compare_with_record
from fusionscope.rules.changes import Changes
from fusionscope.verify.verification import PassVerification, Verification, verify
from fusionscope.versions.context import read_context
from fusionscope.versions.known import load_compiler
from fusionscope.versions.runs import find_runs
from fusionscope.versions.runs import replay as replay_pass

pytestmark = pytest.mark.slow

DUMPS = Path(__file__).parent.parent.parent / "samples" / "dumps"
GPU = sorted(
    path
    for folder in DUMPS.iterdir()
    if not folder.name.startswith(("cpu", "tpu"))
    and not any(version in folder.name for version in ("jaxlib-0.4", "xla-2023"))
    for path in folder.iterdir()
)
COMPILER = load_compiler("gpu-0.12")


def name(dump: Path) -> str:
    return f"{dump.parent.name}/{dump.name}"


@cache
def opened(path: Path) -> Dump:
    return open_dump(path)


@cache
def verified(path: Path) -> Verification:
    dump = opened(path)
    return verify(dump, dump.modules)


def priority_fusion(found: Verification) -> PassVerification:
    (run,) = [
        fusion_pass for fusion_pass in found.passes if fusion_pass.pass_name == PRIORITY_FUSION
    ]
    return run


@pytest.mark.parametrize("path", GPU, ids=name)
def test_the_replay_takes_every_step_that_the_compiler_took(path: Path) -> None:
    actual = verified(path)
    assert not actual.problems
    run = priority_fusion(actual)
    assert run.is_identical, run.divergence
    assert run.pairs.is_full
    assert run.steps is not None
    assert run.steps.first is None
    assert run.decisions.is_full


@pytest.mark.parametrize("path", GPU, ids=name)
def test_every_plan_is_the_compilers(path: Path) -> None:
    for run in verified(path).passes:
        assert run.is_identical, run.divergence
        assert run.has_same_kernels


def test_a_pass_that_was_left_out_is_not_replayed() -> None:
    passes = verified(DUMPS / "h100-without-multi-output-fusion" / "reductions").passes
    names = {run.pass_name for run in passes}
    assert PRIORITY_FUSION in names and "multi_output_fusion" not in names


def test_every_kind_of_step_is_compared() -> None:
    steps = [priority_fusion(verified(path)).steps for path in GPU]
    assert sum(step.native.compared for step in steps if step) > 2000
    assert sum(step.with_triton.compared for step in steps if step) > 20
    assert sum(step.reasons.compared for step in steps if step) > 300
    assert sum(step.fusions.compared for step in steps if step) > 600


@pytest.mark.parametrize("path", GPU, ids=name)
def test_the_record_is_compared_in_full(path: Path) -> None:
    (module,) = [module for module in opened(path).modules if module.priority_fusion is not None]
    assert module.priority_fusion is not None
    assert priority_fusion(verified(path)).decisions.compared == len(module.priority_fusion.steps)


@pytest.mark.parametrize(
    ("path", "id"),
    [
        ("h100/attention", "pf-is-fusible"),
        ("h100/reductions", "pf-negative"),
        ("h100/reductions", "pf-reduce-to-loop"),
        ("h100/softmax", "tri-tiling"),
        ("h100/attention", "tri-heroless"),
    ],
)
def test_other_rules_do_not_agree(path: str, id: str) -> None:
    dump = opened(DUMPS / path)
    compiler = Changes(disabled=(id,)).apply(COMPILER)
    run = priority_fusion(verify(dump, dump.modules, compiler))
    assert run.steps is not None and run.steps.first is not None
    assert not run.decisions.is_full


def test_another_device_does_not_agree() -> None:
    (module,) = opened(DUMPS / "h100" / "dense").modules
    (run,) = (run for run in find_runs(module) if run.pass_name == PRIORITY_FUSION)
    context = read_context(module)
    target = context.target
    assert module.priority_fusion is not None
    before, steps = module.read(run.before), module.priority_fusion.steps
    second = replace(target.device, memory_bandwidth=target.device.memory_bandwidth // 2)
    agreeing = []
    for device in (target.device, second):
        gpu = replace(target, device=device)
        plan = replay_pass(run.pass_name, before, replace(context, gpu=gpu), COMPILER)
        agreeing.append(compare_with_record(plan.events, steps, ()).first is None)
    assert agreeing == [True, False]


def test_users_keep_their_order_whatever_fusions_are_called() -> None:
    """CSE and DCE ran between the two passes, and the compiler numbered the fusions in another
    order; in that of the users of the loop's state stand the outputs of the kernel."""
    actual = verified(Path(__file__).parent / "data/h100/collatz")
    assert [fusion_pass.pass_name for fusion_pass in actual.passes if fusion_pass.after] == [
        PRIORITY_FUSION,
        "multi_output_fusion",
    ]
    assert actual.identical and actual.agreement == 100
