"""Which condition keeps a step out of a product's call of cuBLASLt.

The expectations are those of XLA's source; the compiler agrees, without Triton.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Program, ProgramKind, read_target
from fusionscope.dump import open_dump
from fusionscope.findings.conditions import edited_lines
from fusionscope.findings.epilogues.find import find_epilogues
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.library_calls import EpilogueStep
from fusionscope.hlo import parse
from fusionscope.passes.gpu.gemm_rewriter.epilogues import (
    find_follower,
    find_refusal,
    is_product_call,
)
from fusionscope.passes.gpu.gemm_rewriter.remedies import meet

ADDITION, BIAS, GELU, RELU, SCALING = (
    EpilogueStep.ADDITION,
    EpilogueStep.BIAS,
    EpilogueStep.GELU,
    EpilogueStep.RELU,
    EpilogueStep.SCALING,
)
HEAD = """HloModule product

ENTRY main {
  x = TYPE[32,64] parameter(0)
  w = TYPE[64,16] parameter(1)
  columns = TYPE[16] parameter(2)
  rows = TYPE[32] parameter(3)
  number = TYPE[] parameter(4)
  matrix = TYPE[32,16] parameter(5)
  zero = TYPE[] constant(0)
  zeros = TYPE[32,16] broadcast(zero), dimensions={}
  half = TYPE[] constant(0.5)
  halves = TYPE[32,16] broadcast(half), dimensions={}
  numbers = TYPE[32,16] broadcast(number), dimensions={}
  bias = TYPE[32,16] broadcast(columns), dimensions={1}
  bias_of_rows = TYPE[32,16] broadcast(rows), dimensions={0}
"""
CALL = """  call = (TYPE[32,16], s8[1024]) custom-call(x, w), \
custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"alpha_real":1,\
"beta":BETA,"dot_dimension_numbers":{"lhs_batch_dimensions":[],"lhs_contracting_dimensions":["1"],\
"rhs_batch_dimensions":[],"rhs_contracting_dimensions":["0"]},"epilogue":"EPILOGUE"}}
  product = TYPE[32,16] get-tuple-element(call), index=0
"""
DOT = """  product = TYPE[32,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
"""
POLYNOMIAL = """square = TYPE[32,16] multiply(product, product)
  cube = TYPE[32,16] multiply(product, square)
  small = TYPE[] constant(0.044715)
  smalls = TYPE[32,16] broadcast(small), dimensions={}
  term = TYPE[32,16] multiply(cube, smalls)
  sum = TYPE[32,16] add(product, term)
  root = TYPE[] constant(0.797884561)
  roots = TYPE[32,16] broadcast(root), dimensions={}
  scaled = TYPE[32,16] multiply(sum, roots)
  tangent = TYPE[32,16] tanh(scaled)
  one = TYPE[] constant(1)
  ones = TYPE[32,16] broadcast(one), dimensions={}
  shifted = TYPE[32,16] add(tangent, ones)
"""
HALF_OF_SUM = "  cdf = TYPE[32,16] multiply(shifted, halves)\n"
LAST = "ROOT last = TYPE[32,16] "
USUAL = {"TYPE": "f32", "EPILOGUE": "DEFAULT", "BETA": "0"}
# What follows the product in a program, which step that is, and the condition that is not met.
PROGRAMS: dict[str, tuple[str, EpilogueStep, str | None]] = {
    "a bias": (f"{LAST}add(product, bias)", BIAS, None),
    "ReLU": (f"{LAST}maximum(product, zeros)", RELU, None),
    "another array": (f"{LAST}add(matrix, product)", ADDITION, None),
    "a factor": (f"{LAST}multiply(product, halves)", SCALING, None),
    "GELU": (f"{POLYNOMIAL}{HALF_OF_SUM}  {LAST}multiply(product, cdf)", GELU, None),
    "a bias of rows": (f"{LAST}add(product, bias_of_rows)", BIAS, "lt-minor"),
    "one number for all": (f"{LAST}add(product, numbers)", BIAS, "lt-columns"),
    "a maximum with a number": (f"{LAST}maximum(product, numbers)", RELU, "lt-zero"),
    "a clamp": (f"{LAST}clamp(zeros, product, numbers)", RELU, "lt-zero"),
    "a factor that is an argument": (f"{LAST}multiply(product, numbers)", SCALING, "lt-factor"),
    "another array after a conversion": (
        "wide = f64[32,16] convert(product)\n  wide_matrix = f64[32,16] convert(matrix)\n"
        "  ROOT last = f64[32,16] add(wide, wide_matrix)",
        ADDITION,
        "lt-wider",
    ),
    "a product that is a result, too": (
        "sum = TYPE[32,16] add(product, bias)\n"
        "  ROOT both = (TYPE[32,16], TYPE[32,16]) tuple(sum, product)",
        BIAS,
        "lt-users",
    ),
    "GELU with a part that is a result, too": (
        f"{POLYNOMIAL}{HALF_OF_SUM}  gelu = TYPE[32,16] multiply(product, cdf)\n"
        "  ROOT both = (TYPE[32,16], TYPE[32,16]) tuple(gelu, tangent)",
        GELU,
        "lt-gelu",
    ),
    "GELU with the factor first": (
        f"{POLYNOMIAL}  half_of_product = TYPE[32,16] multiply(product, halves)\n"
        f"  {LAST}multiply(half_of_product, shifted)",
        GELU,
        "lt-gelu",
    ),
    "GELU of another cubic": (
        f"{POLYNOMIAL.replace('0.044715', '0.05')}{HALF_OF_SUM}  {LAST}multiply(product, cdf)",
        GELU,
        "lt-gelu",
    ),
}
# Further calls: what follows them, how they are configured, and the condition that is not met.
CALLS: dict[str, tuple[str, dict[str, str], str | None]] = {
    "a bias after ReLU": (f"{LAST}add(product, bias)", {"EPILOGUE": "RELU"}, "lt-epilogue"),
    "ReLU after a bias": (f"{LAST}maximum(product, zeros)", {"EPILOGUE": "BIAS"}, None),
    "a second array": (f"{LAST}add(product, matrix)", {"BETA": "1"}, "lt-epilogue"),
    "a factor after a bias": (
        f"{LAST}multiply(product, halves)",
        {"EPILOGUE": "BIAS"},
        "lt-epilogue",
    ),
    "a bias of rare numbers": (f"{LAST}add(product, bias)", {"TYPE": "f8e4m3b11fnuz"}, "lt-type"),
    "a slice from the second row on": (
        "sliced = TYPE[31,16] slice(product), slice={[1:32], [0:16]}\n"
        "  rest = TYPE[31,16] slice(matrix), slice={[1:32], [0:16]}\n"
        "  ROOT last = TYPE[31,16] add(sliced, rest)",
        {},
        "lt-slice",
    ),
    "a slice of the first rows": (
        "sliced = TYPE[31,16] slice(product), slice={[0:31], [0:16]}\n"
        "  rest = TYPE[31,16] slice(matrix), slice={[1:32], [0:16]}\n"
        "  ROOT last = TYPE[31,16] add(sliced, rest)",
        {},
        None,
    ),
    "a transposed product": (
        "turned = TYPE[16,32] transpose(product), dimensions={1,0}\n"
        "  turned_matrix = TYPE[16,32] reshape(matrix)\n"
        "  ROOT last = TYPE[16,32] add(turned, turned_matrix)",
        {},
        "lt-between",
    ),
}


def fill(text: str, values: dict[str, str]) -> str:
    for name, value in (USUAL | values).items():
        text = text.replace(name, value)
    return f"{text}\n}}\n"


def follow(text: str, values: dict[str, str]) -> tuple[EpilogueStep, str | None]:
    """Return the step after the call, and the first condition that is not met."""
    module = parse(fill(f"{HEAD}{CALL}  {text}", values))
    (call,) = filter(is_product_call, module.entry.instructions)
    follower = find_follower(call)
    assert follower is not None
    refusal = find_refusal(follower)
    return follower.step, refusal.rule if refusal is not None else None


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_condition_that_is_not_met_is_named(name: str) -> None:
    text, step, rule = PROGRAMS[name]
    assert follow(text, {}) == (step, rule)


@pytest.mark.parametrize("name", CALLS)
def test_what_a_call_already_computes_counts(name: str) -> None:
    text, values, rule = CALLS[name]
    assert follow(text, values)[1] == rule


def test_only_the_first_product_of_a_sum_is_tried() -> None:
    second = (
        CALL.replace("call =", "second =")
        .replace("product =", "later =")
        .replace("get-tuple-element(call)", "get-tuple-element(second)")
    )
    module = parse(fill(f"{HEAD}{CALL}{second}  {LAST}add(product, later)", {}))
    first, last = (
        find_follower(call) for call in module.entry.instructions if is_product_call(call)
    )
    assert first is not None and find_refusal(first) is None
    refusal = find_refusal(last) if last is not None else None
    assert refusal is not None and refusal.rule == "lt-first"
    assert dict(refusal.numbers) == {"at": "call"}


def test_nothing_follows_what_no_call_can_compute() -> None:
    module = parse(fill(f"{HEAD}{CALL}  {LAST}tanh(product)", {}))
    (call,) = filter(is_product_call, module.entry.instructions)
    assert find_follower(call) is None


# The edit that meets the condition of each, written by hand; other programs have none.
EDITS = {
    "a bias of rows": (
        "opt-barrier = f32[32,16] opt-barrier(bias_of_rows)",
        "ROOT last = f32[32,16] add(product, opt-barrier)",
    ),
    "one number for all": (
        "broadcast = f32[16] broadcast(number), dimensions={}",
        "opt-barrier = f32[16] opt-barrier(broadcast)",
        "broadcast.1 = f32[32,16] broadcast(opt-barrier), dimensions={1}",
        "ROOT last = f32[32,16] add(product, broadcast.1)",
    ),
    "another array after a conversion": (
        "convert = f32[32,16] convert(wide_matrix)",
        "add = f32[32,16] add(product, convert)",
        "ROOT convert.1 = f64[32,16] convert(add)",
    ),
    "a product that is a result, too": (
        "opt-barrier = f32[32,64] opt-barrier(x)",
        "opt-barrier.1 = f32[64,16] opt-barrier(w)",
        "custom-call = (f32[32,16], s8[1024]) custom-call(opt-barrier, opt-barrier.1), "
        'custom_call_target="__cublas$lt$matmul"',
        "get-tuple-element = f32[32,16] get-tuple-element(custom-call), index=0",
        "ROOT both = (f32[32,16], f32[32,16]) tuple(sum, get-tuple-element)",
    ),
    "a maximum with a number": (),
    "GELU of another cubic": (),
}


@pytest.mark.parametrize("name", EDITS)
def test_the_edit_that_meets_a_condition(name: str) -> None:
    module = parse(fill(f"{HEAD}{CALL}  {PROGRAMS[name][0]}", {}))
    (call,) = filter(is_product_call, module.entry.instructions)
    follower = find_follower(call)
    refusal = find_refusal(follower) if follower is not None else None
    assert follower is not None and refusal is not None
    graph = MutableModule(module)
    assert meet(refusal.rule, graph, follower) == bool(EDITS[name])
    assert sorted(edited_lines(module, graph)) == sorted(EDITS[name])


@pytest.mark.compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_compiler_agrees(name: str, tmp_path: Path) -> None:
    text, step, rule = PROGRAMS[name]
    file = tmp_path / "product.hlo"
    file.write_text(fill(f"{HEAD}{DOT}  {text}", {}))
    captured = capture(
        Program(kind=ProgramKind.HLO, file=file),
        read_target("h100"),
        tmp_path / "dump",
        flags=["--xla_gpu_enable_triton_gemm=false"],
    )
    assert not captured.problem
    (dump,) = open_dump(captured.directory).modules
    (epilogue,) = find_epilogues(dump)
    left_out = None if rule is None else step
    assert (epilogue.step, epilogue.rule) == (left_out, rule)
    assert len(epilogue.includes) == (rule is None)
