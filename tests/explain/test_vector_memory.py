"""What kernels of a TPU take of its vector memory, and dumps of compilations that ended there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import explain
from fusionscope.facts.result import ModuleFacts
from fusionscope.findings.vector_memory.facts import VectorMemory
from fusionscope.findings.vector_memory.sheet import brief

SAMPLE = Path(__file__).parents[2] / "samples" / "dumps" / "tpu-v5e" / "softmax"
USED = '"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"SIZE"}]'
LIMIT = '"scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"1048576"}],'
FINAL = """HloModule jit_f, is_scheduled=true

ENTRY main {
  x = f32[64,128] parameter(0)
  sine = f32[64,128] sine(x), backend_config={%s}
  large = f32[64,128] custom-call(sine), custom_call_target="tpu_custom_call", backend_config={%s}
  ROOT small = f32[64,128] custom-call(large), custom_call_target="tpu_custom_call", \
backend_config={%s}
}
"""
BUILD = "jit_f.cl_1014260217"


def used(mebibytes: float) -> str:
    return USED.replace("SIZE", str(int(mebibytes * 2**20)))


def dumped(folder: Path, stage: str, flags: str = "") -> ModuleFacts:
    """Explain a dump for a v5e that ends with ``stage``."""
    (target,) = SAMPLE.glob("*target_arguments.txt")
    (folder / f"module_0000.{BUILD}.target_arguments.txt").write_bytes(target.read_bytes())
    if flags:
        (folder / f"module_0000.{BUILD}.tpu_comp_env.txt").write_text(flags)
    text = FINAL % (used(15.5), used(13), LIMIT + used(0.25))
    (folder / f"module_0000.{BUILD}.{stage}.txt").write_text(text)
    return explain(open_dump(folder)).modules[0]


def test_kernels_are_listed_with_their_limits(tmp_path: Path) -> None:
    facts = dumped(tmp_path, "after_codegen")
    kernels = facts.find_all(VectorMemory)
    assert [(kernel.kernel, kernel.bytes, kernel.limit, kernel.is_own) for kernel in kernels] == [
        ("sine", 31 << 19, 16 << 20, False),
        ("large", 13 << 20, 16 << 20, True),
        ("small", 1 << 18, 1 << 20, True),
    ]
    (section,) = brief(facts)  # the first screen warns of blocks that the program chose
    assert [entry.figures[0] for block in section.blocks for entry in block.entries] == [
        "13 of 16 MiB"
    ]


def test_a_flag_moves_the_limit(tmp_path: Path) -> None:
    facts = dumped(tmp_path, "after_codegen", "xla_tpu_scoped_vmem_limit_kib: 32768\n")
    limits = {kernel.kernel: kernel.limit for kernel in facts.find_all(VectorMemory)}
    assert limits == {"sine": 32 << 20, "large": 32 << 20, "small": 1 << 20}


def test_a_compilation_that_stopped_names_the_kernels_of_the_program(tmp_path: Path) -> None:
    facts = dumped(tmp_path, "after_optimizations")
    assert any("before it had code" in note and "large, small" in note for note in facts.notes)


def test_why_a_compilation_failed_is_what_capture_recorded(tmp_path: Path) -> None:
    record = {"problem": "out of vector memory: large", "compile_s": None}
    path = tmp_path / "fusionscope-capture.json"
    path.write_text(json.dumps(record))
    notes = dumped(tmp_path, "after_optimizations").notes
    assert "the compiler did not finish: out of vector memory: large" in notes
    path.write_text(json.dumps(record | {"compile_s": 1.0}))
    assert not open_dump(tmp_path).modules[0].problem  # it compiled, and did not run
    path.write_text("[]")
    with pytest.raises(UnusableInput, match="no record"):
        _ = open_dump(tmp_path).modules[0].problem
