"""Known faults of the compiler.

The modules in ``advisories/`` are what jaxlib 0.10.2 and 0.11.0 made of the programs in the
threads; those for a CPU gave wrong results, or none, when they ran (2026-11-29).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Program, ProgramKind, read_target
from fusionscope.dump import open_dump
from fusionscope.findings.advisories.find import faults_for, find_advisories
from fusionscope.hlo import Module, parse

FOLDER = Path(__file__).parent / "advisories"
BY_ID = {fault.id: fault for backend in ("cpu", "gpu") for fault in faults_for(backend)}
NESTED = """HloModule nested

%fused (a: f32[8,16], b: f32[8,16], c: f32[4,16]) -> f32[20,16] {
  %a = f32[8,16] parameter(0)
  %b = f32[8,16] parameter(1)
  %inner = f32[16,16] concatenate(%a, %b), dimensions={0}
  %c = f32[4,16] parameter(2)
  ROOT %outer = f32[20,16] concatenate(%inner, %c), dimensions={0}
}

ENTRY %main (a: f32[8,16], b: f32[8,16], c: f32[4,16]) -> f32[20,16] {
  %a.1 = f32[8,16] parameter(0)
  %b.1 = f32[8,16] parameter(1)
  %c.1 = f32[4,16] parameter(2)
  ROOT %kernel = f32[20,16] fusion(%a.1, %b.1, %c.1), kind=kCustom, calls=%fused, \
backend_config={"fusion_backend_config":{"kind":"__triton"}}
}
"""


def read(name: str, *changes: tuple[str, str]) -> Module:
    text = (FOLDER / f"{name}.hlo").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse(text)


def names(id: str, final: Module, program: Module | None = None) -> list[str]:
    return [kernel.name for kernel in BY_ID[id].find(final, program)]


@pytest.mark.parametrize("id", ["sum-of-products", "sum-of-seven-dimensions"])
def test_a_sum_that_ynn_gets_wrong_is_named(id: str) -> None:
    assert names(id, read(id)) == ["ynn_fusion"]


def test_a_sum_of_fewer_products_is_right() -> None:
    assert names("sum-of-products", read("sum-of-products", ("32769", "32768"))) == []


def test_a_sum_of_other_numbers_is_right() -> None:
    final = read("sum-of-seven-dimensions", ("f32[", "f64["))
    assert names("sum-of-seven-dimensions", final) == []


def test_the_compilers_own_sums_are_right() -> None:
    final = read("sum-of-products", ("__ynn_fusion", "__other"))
    assert names("sum-of-products", final) == []


def test_a_factor_that_comes_after_the_bias_in_the_program_is_named() -> None:
    final, program = read("factor-before-bias"), read("factor-before-bias-program")
    assert names("factor-before-bias", final, program) == ["cublas-lt-matmul.3"]


def test_a_factor_that_comes_first_in_the_program_is_right() -> None:
    program = read(
        "factor-before-bias-program",
        ("%add.8 = f32[64,256]{1,0} add(%dot_general.1", "%sum = f32[64,256]{1,0} add(%scaled"),
        ("multiply(%add.8, %broadcast)", "negate(%sum)"),
        (
            "  %b.1 =",
            "  %factor = f32[] constant(0.015625)\n"
            "  %factors = f32[64,256]{1,0} broadcast(%factor), dimensions={}\n"
            "  %scaled = f32[64,256]{1,0} multiply(%dot_general.1, %factors)\n  %b.1 =",
        ),
    )
    assert names("factor-before-bias", read("factor-before-bias"), program) == []


def test_without_the_program_nothing_is_claimed() -> None:
    assert names("factor-before-bias", read("factor-before-bias")) == []


def test_a_concatenation_in_another_one_is_named_if_triton_computes_both() -> None:
    assert names("nested-concatenation", parse(NESTED)) == ["kernel"]
    separate = parse(
        NESTED.replace(
            "concatenate(%a, %b), dimensions={0}", "pad(%a, %zero), padding=0_8x0_0"
        ).replace(
            "  %b = f32[8,16] parameter(1)\n",
            "  %b = f32[8,16] parameter(1)\n  %zero = f32[] constant(0)\n",
        )
    )
    assert names("nested-concatenation", separate) == []


@pytest.mark.compiler
def test_this_compiler_has_none_of_the_faults(tmp_path: Path) -> None:
    program = tmp_path / "program.hlo"
    program.write_text((FOLDER / "factor-before-bias-program.hlo").read_text(encoding="utf-8"))
    captured = capture(
        Program(kind=ProgramKind.HLO, file=program),
        read_target("h100"),
        tmp_path / "dump",
        flags=["--xla_gpu_enable_triton_gemm=false"],
    )
    assert not captured.problem
    (dump,) = open_dump(captured.directory).modules
    assert dump.final is not None
    assert find_advisories(dump, dump.read(dump.final)) == ()
