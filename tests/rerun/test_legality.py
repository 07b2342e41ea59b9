"""Operations that a user wants in one kernel, and those that cannot be."""

from __future__ import annotations

import pytest

from fusionscope import UnusableInput, parse
from fusionscope.graph.comparison import find_divergence
from fusionscope.graph.mutable import MutableModule, to_module
from fusionscope.history.outcomes import Outcome, pairs_after
from fusionscope.hlo import Module
from fusionscope.rerun.kernels import place_kernels
from fusionscope.rerun.legality import find_problems, require_legal

CHAIN = parse("""
HloModule chain

sum {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}

ENTRY main {
  x = f32[8,4] parameter(0)
  a = f32[8,4] exponential(x)
  b = f32[8,4] negate(a)
  c = f32[8,4] abs(b)
  zero = f32[] constant(0)
  r = f32[8] reduce(a, zero), dimensions={1}, to_apply=sum
  d = f32[8,4] broadcast(r), dimensions={0}
  e = f32[8,4] add(c, d)
  ROOT t = (f32[8,4], f32[8]) tuple(e, r)
}
""")


def placed(*kernels: tuple[str, ...], module: Module = CHAIN) -> Module:
    graph = MutableModule(module)
    place_kernels(graph, kernels, lambda _: "kLoop")
    output = to_module(graph)
    output.check()
    return output


def outcomes(output: Module, module: Module = CHAIN) -> dict[str, Outcome]:
    return {
        f"{pair.producer.name} -> {pair.consumer.name}": pair.outcome
        for pair in pairs_after(module, output)
    }


def test_a_chain_becomes_one_kernel() -> None:
    output = placed(("b", "c"))
    assert outcomes(output)["b -> c"] is Outcome.FUSED
    assert outcomes(output)["a -> b"] is Outcome.NOT_FUSED
    expected = parse("""
HloModule chain

sum {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}

fused {
  a = f32[8,4] parameter(0)
  b = f32[8,4] negate(a)
  ROOT c = f32[8,4] abs(b)
}

ENTRY main {
  x = f32[8,4] parameter(0)
  a = f32[8,4] exponential(x)
  c = f32[8,4] fusion(a), kind=kLoop, calls=fused
  zero = f32[] constant(0)
  r = f32[8] reduce(a, zero), dimensions={1}, to_apply=sum
  d = f32[8,4] broadcast(r), dimensions={0}
  e = f32[8,4] add(c, d)
  ROOT t = (f32[8,4], f32[8]) tuple(e, r)
}
""")
    assert find_divergence(output, expected) is None


def test_what_something_else_reads_becomes_a_result() -> None:
    output = placed(("a", "b"))
    (fusion,) = [
        instruction for instruction in output.entry.instructions if instruction.opcode == "fusion"
    ]
    assert fusion.shape.is_tuple
    assert outcomes(output)["a -> b"] is Outcome.DUPLICATED  # and written for the reduction
    names = {instruction.name for instruction in output.entry.instructions}
    assert not {"a", "b"} & names


def test_what_is_in_several_kernels_is_computed_in_each() -> None:
    output = placed(("a", "b"), ("a", "r"))
    fusions = [
        instruction for instruction in output.entry.instructions if instruction.opcode == "fusion"
    ]
    opcodes = [sorted(i.opcode for i in fusion.called[0].instructions) for fusion in fusions]
    assert len(fusions) == 2
    assert all("exponential" in opcode for opcode in opcodes)
    assert not any(fusion.shape.is_tuple for fusion in fusions)
    assert "exponential" not in {instruction.opcode for instruction in output.entry.instructions}


def test_kernels_in_a_loop() -> None:
    module = parse("""
HloModule loop

body {
  state = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  v = f32[8] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  w = f32[8] negate(v)
  u = f32[8] abs(w)
  ROOT out = (s32[], f32[8]) tuple(next, u)
}

condition {
  state = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  nine = s32[] constant(9)
  ROOT less = pred[] compare(i, nine), direction=LT
}

ENTRY main {
  start = (s32[], f32[8]) parameter(0)
  ROOT end = (s32[], f32[8]) while(start), condition=condition, body=body
}
""")
    assert outcomes(placed(("w", "u"), module=module), module)["w -> u"] is Outcome.FUSED
    with pytest.raises(UnusableInput, match="no kernel for both"):
        placed(("w", "less"), module=module)


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [
        (("a", "nothing"), "no operation before fusion is called 'nothing'"),
        (("x", "a"), "x is a parameter"),
        (("t", "e"), "t is a tuple"),
        (("a", "e"), "a and e cannot be in one kernel: b depends on the first"),
        (("a", "b", "c", "e"), "a and e cannot be in one kernel: r depends on the first"),
    ],
)
def test_what_cannot_be_one_kernel_is_told(kernel: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UnusableInput, match=problem):
        placed(kernel)


def test_what_is_only_in_kernels_of_others_is_told() -> None:
    with pytest.raises(UnusableInput, match="nothing but the kernels of"):
        placed(("b", "a"), ("b", "c"), ("a", "b", "c"))


BODIES = {
    "sort": (
        "sort f32[8] sort(x), dimensions={0}, to_apply=less",
        "cannot contain sort",
    ),
    "custom call": (
        'call f32[8] custom-call(x), custom_call_target="f"',
        "cannot contain custom-call",
    ),
    "nested fusion": ("inner f32[8] fusion(x), kind=kLoop, calls=deep", "is a fusion itself"),
    "scatter in the middle": (
        "s f32[8] scatter(x, i, x), update_window_dims={0}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=add",
        "can only be its last operation",
    ),
    "while": ("w f32[8] while(x), condition=goes, body=deep", "cannot contain while"),
}


@pytest.mark.parametrize("case", BODIES)
def test_operations_that_no_kernel_holds(case: str) -> None:
    line, problem = BODIES[case]
    name, _, remaining = line.partition(" ")
    fusion = fused(f"  {name} = {remaining}\n  ROOT y = f32[8] negate({name})")
    assert any(problem in item for item in find_problems(fusion, "cpu"))


def fused(body: str):
    module = parse(f"""
HloModule m

less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}}

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

deep {{
  a = f32[8] parameter(0)
  ROOT b = f32[8] abs(a)
}}

goes {{
  a = f32[8] parameter(0)
  ROOT b = pred[] constant(true)
}}

body {{
  x = f32[8] parameter(0)
  i = s32[1] parameter(1)
  n = s32[] parameter(2)
  u = f32[2] parameter(3)
{body}
}}

ENTRY main {{
  x = f32[8] parameter(0)
  i = s32[1] parameter(1)
  n = s32[] parameter(2)
  u = f32[2] parameter(3)
  ROOT f = f32[8] fusion(x, i, n, u), kind=kLoop, calls=body
}}
""")
    return MutableModule(module).entry.root


def test_results_of_different_shapes() -> None:
    graph = MutableModule(CHAIN)
    (name,) = place_kernels(graph, [("a", "r")], lambda _: "kLoop")
    fusion = next(
        instruction for instruction in graph.entry.instructions if instruction.name == name
    )
    assert any("not of one shape" in problem for problem in find_problems(fusion, "cpu"))
    fusion.fusion_kind = "kInput"  # which loops over what the reduction reads
    assert not list(find_problems(fusion, "cpu"))


def test_a_kernel_that_reads_what_it_overwrites() -> None:
    update = "dynamic-update-slice(x, u, n)"
    safe = fused(f"  ROOT y = f32[8] {update}")
    assert not list(find_problems(safe, "cpu"))
    reversed_ = fused(
        "  r = f32[8] reverse(x), dimensions={0}\n  s = f32[2] slice(r), slice={[0:2]}\n"
        "  ROOT y = f32[8] dynamic-update-slice(x, s, n)"
    )
    assert any("overwrites x" in problem for problem in find_problems(reversed_, "cpu"))


def test_a_kernel_that_reads_just_what_it_updates() -> None:
    part = "  p = f32[2] dynamic-slice(x, n), dynamic_slice_sizes={2}\n"
    update = "  ROOT y = f32[8] dynamic-update-slice(x, q, n)"
    assert not list(find_problems(fused(f"{part}  q = f32[2] negate(p)\n{update}"), "cpu"))
    turned = fused(f"{part}  q = f32[2] reverse(p), dimensions={{0}}\n{update}")
    assert any("overwrites x" in problem for problem in find_problems(turned, "cpu"))
    elsewhere = part.replace("(x, n)", "(x, m)")
    second = "  one = s32[] constant(1)\n  m = s32[] add(n, one)\n"
    moved = fused(f"{second}{elsewhere}  q = f32[2] negate(p)\n{update}")
    assert any("overwrites x" in problem for problem in find_problems(moved, "cpu"))


@pytest.mark.parametrize(
    ("second", "backend", "is_legal"),
    [
        ("f32[6]{0}", "gpu", True),
        ("f32[6]{0}", "cpu", False),
        ("f32[1,2,3]{2,1,0}", "gpu", True),
        ("f32[2,3,1]{0,1,2}", "gpu", False),  # the same elements in another order
        ("f32[7]{0}", "gpu", False),
    ],
)
def test_results_that_are_the_same_memory(second: str, backend: str, is_legal: bool) -> None:
    module = parse(f"""HloModule two

body {{
  x = f32[2,3]{{1,0}} parameter(0)
  y = {second} parameter(1)
  one = f32[2,3]{{1,0}} negate(x)
  two = {second} negate(y)
  ROOT both = (f32[2,3]{{1,0}}, {second}) tuple(one, two)
}}

ENTRY main {{
  x = f32[2,3]{{1,0}} parameter(0)
  y = {second} parameter(1)
  ROOT f = (f32[2,3]{{1,0}}, {second}) fusion(x, y), kind=kLoop, calls=body
}}
""")
    problems = list(find_problems(MutableModule(module).entry.root, backend))
    assert problems == [] if is_legal else "not of one shape" in problems[0]


@pytest.mark.parametrize("end", ["reduce(x, zero), dimensions={0}, to_apply=sum", "negate(r)"])
def test_the_loop_of_a_reduction_is_over_its_input(end: str) -> None:
    """The compiler itself makes such a kernel of a NumPyro program, for an H100."""
    module = parse(f"""HloModule two

sum {{
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}}

body {{
  x = f32[50]{{0}} parameter(0)
  zero = f32[] constant(0)
  r = f32[] reduce(x, zero), dimensions={{0}}, to_apply=sum
  one = f32[] {end}
  two = f32[50]{{0}} negate(x)
  ROOT both = (f32[], f32[50]{{0}}) tuple(one, two)
}}

ENTRY main {{
  x = f32[50]{{0}} parameter(0)
  ROOT f = (f32[], f32[50]{{0}}) fusion(x), kind=kInput, calls=body
}}
""")
    assert not list(find_problems(MutableModule(module).entry.root, "gpu"))


def test_a_plan_for_another_module() -> None:
    second = parse("HloModule chain\n\nENTRY main {\n  ROOT x = f32[3] parameter(0)\n}\n")
    with pytest.raises(UnusableInput, match="for another module"):
        require_legal(second, CHAIN, CHAIN, "cpu")
    require_legal(CHAIN, CHAIN, CHAIN, "cpu")


def test_kernels_of_the_compilers_own_are_not_questioned() -> None:
    graph = MutableModule(CHAIN)
    place_kernels(graph, [("a", "r")], lambda _: "kLoop")
    output = to_module(graph)
    with pytest.raises(UnusableInput, match="cannot be a kernel"):
        require_legal(output, CHAIN, CHAIN, "cpu")
    require_legal(output, output, CHAIN, "cpu")
