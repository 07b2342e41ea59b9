"""Parts of a plan: which there are, and what is compiled if only they are fused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fusionscope import UnusableInput, parse
from fusionscope.bisect.fused_plan import FusedPlan, Part
from fusionscope.dump import open_dump
from fusionscope.graph.comparison import find_divergence
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module
from fusionscope.rerun.plans import own_plan

CPU = Path(__file__).parents[2] / "samples" / "dumps" / "cpu"
NAMES = ["attention", "concatenate", "elementwise", "loop", "reductions", "softmax"]


@pytest.fixture(
    scope="module",
    params=[*NAMES, pytest.param("cartpole", marks=[pytest.mark.slow, pytest.mark.long])],
)
def plan(request: pytest.FixtureRequest) -> FusedPlan:
    (module,) = open_dump(CPU / request.param).modules
    return FusedPlan(module, own_plan(module))


def sizes(module: Module) -> list[int]:
    """How many operations each fusion has, without constants."""
    left_out = ("parameter", "tuple", "constant", "broadcast", "iota")
    return [
        sum(inner.opcode not in left_out for inner in instruction.fused.instructions)
        for instruction in MutableModule(module).walk()
        if instruction.opcode == "fusion"
    ]


def test_all_parts_are_the_plan_and_no_part_is_no_fusion(plan: FusedPlan) -> None:
    assert find_divergence(plan.fuse(plan.parts).module, plan.plan.after) is None
    without = plan.fuse(())
    assert without.kernels == ()
    assert max(sizes(without.module)) <= 1
    assert plan.plan.after.entry.root.shape == without.module.entry.root.shape


def test_each_part_alone_is_one_kernel_with_it(plan: FusedPlan) -> None:
    for part in plan.parts:
        (kernel,) = plan.fuse([part]).kernels
        names = {operation.name for operation in kernel.operations}
        assert kernel.kernel.name == part.kernel
        assert not part.producer or {part.producer, part.consumer} <= names


def test_any_parts_are_a_module_without_cycles(plan: FusedPlan) -> None:
    source = random.Random(0)
    for _ in range(20):
        parts = source.sample(plan.parts, source.randint(1, len(plan.parts)))
        try:
            fused = plan.fuse(parts)
        except UnusableInput as problem:
            assert "cannot be a kernel" in str(problem)
            continue
        assert {kernel.kernel.name for kernel in fused.kernels} == {part.kernel for part in parts}
        fused.module.check()


def diamond() -> FusedPlan:
    """A kernel in which the sum reads the product directly and behind a tangent."""
    (module,) = open_dump(CPU / "elementwise").modules
    plan = own_plan(module)
    text = """HloModule m

fused {
  p = f32[8]{0} parameter(0)
  product = f32[8]{0} multiply(p, p)
  tangent = f32[8]{0} tanh(product)
  ROOT sum = f32[8]{0} add(product, tangent)
}

ENTRY main {
  p = f32[8]{0} parameter(0)
  ROOT kernel = f32[8]{0} fusion(p), kind=kLoop, calls=fused
}
"""
    from dataclasses import replace

    return FusedPlan(module, replace(plan, after=parse(text)))


def test_what_must_run_between_two_operations_joins_them() -> None:
    plan = diamond()
    direct = Part("kernel", "product", "sum")
    assert direct in plan.parts
    (kernel,) = plan.fuse([direct]).kernels
    assert [operation.name for operation in kernel.operations] == ["product", "tangent", "sum"]
    (kernel,) = plan.fuse([Part("kernel", "product", "tangent")]).kernels
    assert [operation.name for operation in kernel.operations] == ["product", "tangent"]
