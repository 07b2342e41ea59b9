"""Dumps of releases between those of the samples replay with the rules of their release."""

from pathlib import Path

import pytest
from conformance.examples import H100, replay_pass

from fusionscope.dump import open_dump
from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.triton import Triton
from fusionscope.gpu.triton_support import unsupported
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import parse
from fusionscope.passes.gpu.gemm_fusion.rules import GemmState
from fusionscope.verify.verification import verify
from fusionscope.versions.choice import _contradicts, choose_compiler
from fusionscope.versions.known import load_compiler

DUMPS = Path(__file__).parent / "dumps"


@pytest.mark.parametrize(
    ("folder", "compiler"),
    [
        ("cpu-jaxlib-0.4.38/concatenate", "cpu-0.4.38"),
        ("h100-jaxlib-0.4.38/dense", "gpu-0.4.38"),
        ("cpu-jaxlib-0.5.3/reductions", "cpu-0.5.3"),
        ("h100-jaxlib-0.5.3/updates", "gpu-0.5.3"),
        ("cpu-jaxlib-0.6/softmax", "cpu-0.6.2"),
        ("h100-jaxlib-0.6/power", "gpu-0.6.2"),
        ("h100-jaxlib-0.7/dense", "gpu-0.7.2"),
        ("h100-jaxlib-0.7/dynamic_slice", "gpu-0.7.2"),
        ("h100-jaxlib-0.7/picked", "gpu-0.7.2"),  # a Triton fusion of two results
        ("h100-jaxlib-0.7/accumulators", "gpu-0.7.2"),  # a kernel is estimated as what it was
        ("cpu-jaxlib-0.9.0/attention", "cpu-0.9.0"),
        ("cpu-jaxlib-0.9.2/reductions", "cpu-0.9.2"),
        ("h100-jaxlib-0.9.2/dense", "gpu-0.9.2"),
        ("cpu-jaxlib-0.10.0/attention", "cpu-0.10.0"),
        ("cpu-jaxlib-0.10.1/attention", "cpu-0.10.1"),
        ("h100-jaxlib-0.10.2/slices", "gpu-0.10"),  # one product sums 1,024 elements, one 1,025
    ],
)
def test_a_dump_replays_with_the_rules_of_its_release(folder, compiler):
    dump = open_dump(DUMPS / folder)
    module = max(dump.modules, key=lambda dumped: len(dumped.stages))  # older ones leave a clone
    choice = choose_compiler(module)
    assert (choice.name, choice.are_checked) == (compiler, True)
    (verified,) = verify(dump, [module]).modules
    assert verified.passes and all(run.is_identical for run in verified.passes)
    assert any(run.decisions.compared for run in verified.passes)
    assert all(run.decisions.compared == run.decisions.agreeing for run in verified.passes)


@pytest.mark.parametrize(("release", "dots"), [("0.10.0", 2), ("0.10.1", 0)])
def test_only_newer_library_fusions_hold_single_dots(release, dots):
    (module,) = open_dump(DUMPS / f"cpu-jaxlib-{release}" / "attention").modules
    instructions = module.read(module.last).entry.instructions
    assert sum(instruction.opcode == "dot" for instruction in instructions) == dots


def test_before_0_10_a_product_ends_where_its_result_is_no_longer_linear():
    (module,) = open_dump(DUMPS / "h100-jaxlib-0.9.2" / "dense").modules
    kernel = next(stage for stage in module.stages if stage.name.after == "triton-gemm-rewriter")
    instructions = module.read(kernel).entry.instructions
    assert [i.opcode for i in instructions if i.opcode in ("add", "fusion")] == ["fusion", "add"]


@pytest.mark.parametrize(("name", "is_supported"), [("gpu-0.9.2", False), ("gpu-0.10.1", True)])
@pytest.mark.parametrize("element_type", ["f16", "bf16", "f32"])
def test_triton_divides_halves_since_0_10(name, is_supported, element_type):
    shape = f"{element_type}[8]"
    graph = MutableModule(
        parse(
            f"HloModule m\n\nENTRY main {{\n  a = {shape} parameter(0)\n"
            f"  ROOT quotient = {shape} divide(a, a)\n}}\n"
        )
    )
    triton = load_compiler(name).gpu.triton
    problem = unsupported(graph.entry.root, H100, triton)
    assert (problem is None) == (is_supported or element_type == "f32")


@pytest.mark.parametrize(
    ("element_type", "attributes", "is_refused"),
    [
        ("f32", "", False),
        ("f32", ", operand_precision={default,highest}", True),
        ("f32", ", operand_precision={highest,highest}, algorithm=dot_tf32_tf32_f32", False),
        ("f16", ", algorithm=dot_f16_f16_f32", True),
        ("f64", "", True),
    ],
)
def test_before_0_10_1_fewer_products_go_to_triton(element_type, attributes, is_refused):
    shape = f"{element_type}[64,64]"
    text = (
        f"HloModule m\n\nENTRY main {{\n  a = {shape} parameter(0)\n  ROOT product = {shape} "
        "dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        f"{attributes}\n}}\n"
    )
    for name, is_expected in (("gpu-0.10.0", is_refused), ("gpu-0.10.1", False)):
        compiler = load_compiler(name)
        rule = compiler.find_rule("gf-dot-support")
        state = GemmState(H100, 0, compiler.gpu.triton)
        decision = rule.check(MutableModule(parse(text)).entry.root, state)
        assert (decision is not None) == is_expected, name


def test_the_choice_is_made_once(monkeypatch):
    (module,) = open_dump(DUMPS / "cpu-jaxlib-0.9.0" / "attention").modules
    names = []

    def contradicts(module, compiler):
        names.append(compiler.name)
        return _contradicts(module, compiler)

    monkeypatch.setattr("fusionscope.versions.choice._contradicts", contradicts)
    assert choose_compiler(module) == choose_compiler(module)
    assert names == ["cpu-0.9.2", "cpu-0.9.0"]


@pytest.mark.parametrize(
    ("name", "shared_bytes"), [("gpu-0.5.3", 32 * 33 * 2), ("gpu-0.6.2", 8192)]
)
def test_a_tiled_transpose_packs_halves_since_0_6(name, shared_bytes):
    graph = MutableModule(
        parse(
            "HloModule m\n\nENTRY main {\n  a = bf16[64,64] parameter(0)\n"
            "  ROOT turned = bf16[64,64] transpose(a), dimensions={1,0}\n}\n"
        )
    )
    tiled = load_compiler(name).gpu.emitters.tiled_transpose(graph.entry.root)
    assert tiled.shared_memory == shared_bytes


LOOPED_TRANSPOSE = """
HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

rows {
  value = f32[64,64] parameter(0)
  zero = f32[] constant(0)
  ROOT total = f32[64] reduce(value, zero), dimensions={1}, to_apply=sum
}

turned {
  value = f32[64,64] parameter(0)
  long = f32[1024,4] bitcast(value)
  ROOT result = f32[4,1024] transpose(long), dimensions={1,0}
}

ENTRY main {
  source = f32[64,64] parameter(0)
  total = f32[64] fusion(source), kind=kInput, calls=rows
  looped = f32[4,1024] fusion(source), kind=kLoop, calls=turned
  ROOT both = (f32[64], f32[4,1024]) tuple(total, looped)
}
"""


@pytest.mark.parametrize(("name", "is_joined"), [("gpu-0.6.2", True), ("gpu-0.7.2", False)])
def test_a_looped_transpose_joins_a_reduction_until_0_6(name, is_joined):
    book = load_compiler(name).find("multi_output_fusion").book
    decisions = replay_pass(book, name, parse(LOOPED_TRANSPOSE)).decisions
    assert any(decision.fusion for decision in decisions) == is_joined


@pytest.mark.parametrize(
    ("name", "message"), [("gpu-0.6.2", "MOF-fusion of"), ("gpu-0.7.2", "multi-output fusion of")]
)
def test_a_tiled_transpose_and_a_reduction_are_refused_in_the_words_of_the_version(name, message):
    book = load_compiler(name).find("multi_output_fusion").book
    tiled = LOOPED_TRANSPOSE.replace("1024,4]", "64,64]").replace("4,1024]", "64,64]")
    decisions = replay_pass(book, name, parse(tiled)).decisions
    assert any(message in str(decision) for decision in decisions)


UNTILEABLE = """
HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

total {
  values = f32[64,48] parameter(0)
  square = f32[64,48] multiply(values, values)
  flat = f32[3072] bitcast(square)
  zero = f32[] constant(0)
  ROOT result = f32[] reduce(flat, zero), dimensions={0}, to_apply=sum
}

ENTRY main {
  source = f32[64,48] parameter(0)
  ROOT sum = f32[] fusion(source), kind=kInput, calls=total
}
"""


@pytest.mark.parametrize(
    ("name", "quotient", "instruction"),
    [
        ("gpu-0.8", "s0 floordiv 48", "%source = "),
        ("gpu-0.9.2", "s0 floordiv 48", "%square = "),
        ("gpu-0.10", "s0 / 48", "%square = "),
    ],
)
def test_messages_about_tiles_name_operands_first_until_0_8(name, quotient, instruction):
    fusion = MutableModule(parse(UNTILEABLE)).entry.root
    triton = Triton(H100, load_compiler(name).gpu.triton)
    problem = triton.find_best_tiling(FusionBody(fusion))
    assert quotient in problem.message
    assert instruction in problem.message
