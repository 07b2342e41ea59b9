"""Which condition keeps a product of 8-bit floats from being one call of cuBLASLt.

The expectations are those of XLA's source; the compiler agrees, without Triton.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Program, ProgramKind, read_target
from fusionscope.dump import open_dump
from fusionscope.dump.device import CudaCapability
from fusionscope.findings.conditions import condition_lines, edited_lines
from fusionscope.findings.float8.find import find_products, products_of
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import parse
from fusionscope.passes.gpu.gemm_rewriter.float8 import Product, find_refusal, read_operand
from fusionscope.passes.gpu.gemm_rewriter.float8_remedies import meet

HOPPER = CudaCapability(9, 0, "a")
PROGRAM = """HloModule product

ENTRY main {{
  x = {left}[32,64] parameter(0)
  w = {right}[64,16] parameter(1)
  x_scale = f32[] parameter(2)
  w_scale = {scale} parameter(3)
  x_wide = f32[32,64] convert(x)
  x_scales = f32[32,64] broadcast(x_scale), dimensions={{}}
  x_scaled = f32[32,64] {scaling}(x_wide, x_scales)
  w_wide = f32[64,16] convert(w)
  w_scales = f32[64,16] broadcast(w_scale), dimensions={dimensions}
  w_scaled = f32[64,16] multiply(w_scales, w_wide)
  {between}
  ROOT dot = f32[32,16] dot({operand}, w_scaled), lhs_contracting_dims={{1}}, \
rhs_contracting_dims={{0}}, metadata={{op_name="product"}}
}}
"""
USUAL = {
    "left": "f8e4m3fn",
    "right": "f8e4m3fn",
    "scale": "f32[]",
    "scaling": "multiply",
    "dimensions": "{}",
    "between": "",
    "operand": "x_scaled",
}
SELECTION = """mask = pred[32,64] parameter(4)
  chosen = f32[32,64] select(mask, x_scaled, x_scales)"""
CASES = {
    "scaled by numbers": ({}, None),
    "divided by a number": ({"scaling": "divide"}, None),
    "one operand in the other format": ({"left": "f8e5m2"}, None),
    "both operands in the other format": ({"left": "f8e5m2", "right": "f8e5m2"}, "f8-formats"),
    "a format of another vendor": ({"left": "f8e4m3fnuz"}, "f8-formats"),
    "a scale for each column": ({"scale": "f32[16]", "dimensions": "{1}"}, "f8-scale"),
    "an operand in full precision": ({"right": "f32"}, "f8-source"),
    "no scale": ({"operand": "x_wide"}, None),
    "a maximum after scaling": (
        {"between": "largest = f32[32,64] maximum(x_scaled, x_scales)", "operand": "largest"},
        "f8-source",
    ),
    "negated after scaling": (
        {"between": "negated = f32[32,64] negate(x_scaled)", "operand": "negated"},
        "f8-between",
    ),
    "a selection of other numbers": ({"between": SELECTION, "operand": "chosen"}, "f8-between"),
    "a selection after division": (
        {"scaling": "divide", "between": SELECTION, "operand": "chosen"},
        "f8-between",
    ),
    "transposed after scaling": (
        {
            "between": "turned = f32[64,32] transpose(x_scaled), dimensions={1,0}\n"
            "back = f32[32,64] reshape(turned)",
            "operand": "back",
        },
        None,
    ),
}


def find_rule(text: str, capability: CudaCapability | None = HOPPER) -> str | None:
    (dot,) = [item for item in MutableModule(parse(text)).walk() if item.opcode == "dot"]
    product = Product(dot, (read_operand(dot, 0), read_operand(dot, 1)), capability)
    refusal = find_refusal(product)
    return refusal.rule if refusal is not None else None


@pytest.mark.parametrize("name", CASES)
def test_the_first_condition_that_is_not_met_is_named(name: str) -> None:
    changes, rule = CASES[name]
    assert find_rule(PROGRAM.format(**USUAL | changes)) == rule


# The edit that meets the condition of each, written by hand, after how it changes the result: empty
# if only by rounding, None without an edit.
EDITS: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "a scale for each column": (
        "",
        (
            "ROOT multiply = f32[32,16] multiply(dot, broadcast)",
            "broadcast = f32[32,16] broadcast(w_scale), dimensions={1}",
            "dot = f32[32,16] dot(x_scaled, w_wide), lhs_contracting_dims={1}, "
            "rhs_contracting_dims={0}",
        ),
    ),
    "negated after scaling": (
        "",
        (
            "constant = f32[] constant(-1)",
            "multiply = f32[] multiply(x_scale, constant)",
            "broadcast = f32[32,64] broadcast(multiply), dimensions={}",
            "multiply.1 = f32[32,64] multiply(x_wide, broadcast)",
            "ROOT dot = f32[32,16] dot(multiply.1, w_scaled), lhs_contracting_dims={1}, "
            "rhs_contracting_dims={0}",
        ),
    ),
    "both operands in the other format": (
        "the left operand becomes f8e4m3fn, which ends at 448",
        (
            "convert = f8e4m3fn[32,64] convert(x)",
            "x_wide = f32[32,64] convert(convert)",
        ),
    ),
    "an operand in full precision": (
        "the right operand is rounded to f8e4m3fn, with a scale (parameter_4) that keeps it within "
        "448",
        (
            "parameter_4 = f32[] parameter(4)",
            "broadcast = f32[64,16] broadcast(parameter_4), dimensions={}",
            "divide = f32[64,16] divide(w_scaled, broadcast)",
            "convert = f8e4m3fn[64,16] convert(divide)",
            "convert.1 = f32[64,16] convert(convert)",
            "multiply = f32[64,16] multiply(convert.1, broadcast)",
            "ROOT dot = f32[32,16] dot(x_scaled, multiply), lhs_contracting_dims={1}, "
            "rhs_contracting_dims={0}",
        ),
    ),
    "a selection of other numbers": (
        "the left operand is rounded to f8e4m3fn",
        (
            "broadcast = f32[32,64] broadcast(x_scale), dimensions={}",
            "divide = f32[32,64] divide(chosen, broadcast)",
            "convert = f8e4m3fn[32,64] convert(divide)",
            "convert.1 = f32[32,64] convert(convert)",
            "multiply = f32[32,64] multiply(convert.1, broadcast)",
            "ROOT dot = f32[32,16] dot(multiply, w_scaled), lhs_contracting_dims={1}, "
            "rhs_contracting_dims={0}",
        ),
    ),
    "a selection after division": (
        "the left operand is rounded to f8e4m3fn",
        (
            "broadcast = f32[32,64] broadcast(x_scale), dimensions={}",
            "multiply = f32[32,64] multiply(chosen, broadcast)",
            "convert = f8e4m3fn[32,64] convert(multiply)",
            "convert.1 = f32[32,64] convert(convert)",
            "divide = f32[32,64] divide(convert.1, broadcast)",
            "ROOT dot = f32[32,16] dot(divide, w_scaled), lhs_contracting_dims={1}, "
            "rhs_contracting_dims={0}",
        ),
    ),
    "a format of another vendor": (None, ()),
}


@pytest.mark.parametrize("name", EDITS)
def test_the_edit_that_meets_a_condition(name: str) -> None:
    changes, rule = CASES[name]
    module = parse(PROGRAM.format(**USUAL | changes))
    graph = MutableModule(module)
    (product,) = products_of(graph, HOPPER)
    result_changes, edit = EDITS[name]
    assert rule is not None and meet(rule, product) == result_changes
    assert sorted(edited_lines(module, graph)) == sorted(edit)


def test_an_edit_says_how_it_changes_the_result() -> None:
    edit = ("convert = f8e4m3fn[32,64] convert(x)",)
    texts = [
        "".join(str(part) for part in condition_lines("f8-formats", "why", None, edit, changes))
        for changes in ("the left operand becomes f8e4m3fn", "")
    ]
    assert "changes the result: the left operand becomes f8e4m3fn" in texts[0]
    assert "changes the result" not in texts[1]


def test_what_stands_between_an_operand_and_8_bit_floats_is_named() -> None:
    changes, _ = CASES["a maximum after scaling"]
    (dot,) = [
        item
        for item in MutableModule(parse(PROGRAM.format(**USUAL | changes))).walk()
        if item.opcode == "dot"
    ]
    left, _ = operands = read_operand(dot, 0), read_operand(dot, 1)
    refusal = find_refusal(Product(dot, operands, HOPPER))
    assert left.obstacle is not None and refusal is not None
    assert refusal.message == "the way from the left operand to 8-bit floats ends at maximum"
    assert dict(refusal.numbers) == {"at": "largest"}


def test_8_bit_floats_of_another_product_are_not_those_of_an_operand() -> None:
    changes = {
        "between": "before = f32[32,16] dot(x_scaled, w_scaled), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}\n  flat = f32[512] reshape(before)\n"
        "  both = f32[1024] concatenate(flat, flat), dimensions={0}\n"
        "  pair = f32[2048] concatenate(both, both), dimensions={0}\n"
        "  next = f32[32,64] reshape(pair)",
        "operand": "next",
    }
    module = MutableModule(parse(PROGRAM.format(**USUAL | changes)))
    left = read_operand(module.entry.root, 0)
    assert left.path == () and left.obstacle is None


@pytest.mark.parametrize(
    ("capability", "rule"),
    [(CudaCapability(8, 0, ""), "f8-device"), (CudaCapability(8, 9, ""), None), (None, None)],
)
def test_the_gpu_has_to_have_such_instructions(
    capability: CudaCapability | None, rule: str | None
) -> None:
    assert find_rule(PROGRAM.format(**USUAL), capability) == rule


def test_a_selection_between_the_operand_and_zeros_can_come_first() -> None:
    masked = """mask = pred[32,64] parameter(4)
  {constant} = f32[] constant({value})
  others = f32[32,64] broadcast({constant}), dimensions={{}}
  chosen = f32[32,64] select(mask, x_scaled, others)"""
    rules = [
        find_rule(
            PROGRAM.format(
                **USUAL
                | {"between": masked.format(constant="number", value=value), "operand": "chosen"}
            )
        )
        for value in ("0", "1")
    ]
    assert rules == [None, "f8-between"]


@pytest.mark.compiler
@pytest.mark.parametrize("name", CASES)
def test_the_compiler_agrees(name: str, tmp_path: Path) -> None:
    changes, rule = CASES[name]
    file = tmp_path / "product.hlo"
    file.write_text(PROGRAM.format(**USUAL | changes))
    captured = capture(
        Program(kind=ProgramKind.HLO, file=file),
        read_target("h100"),
        tmp_path / "dump",
        flags=["--xla_gpu_enable_triton_gemm=false"],
    )
    assert not captured.problem
    (dump,) = open_dump(captured.directory).modules
    assert dump.final is not None
    (product,) = find_products(dump, dump.read(dump.final))
    assert product.rule == rule
    assert product.is_call == (rule is None)
