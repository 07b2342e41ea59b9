import io
import json
import shutil
from pathlib import Path

import pytest
from autotuner_logs import Protobuf, add_log
from rich.console import Console

from fusionscope.dump import open_dump
from fusionscope.explain.explain import explain, explain_module
from fusionscope.findings.autotuned.facts import Autotuned
from fusionscope.findings.autotuned.sheet import brief, sheet
from fusionscope.words.terminal import print_sections

DENSE = Path(__file__).resolve().parents[2] / "samples" / "dumps" / "h100" / "dense"


@pytest.fixture
def protobuf():
    return Protobuf()


@pytest.fixture
def dump(tmp_path):
    return shutil.copytree(DENSE, tmp_path / "dump")


def fusion_with_dot(protobuf):
    """The instruction of the sample that the autotuner sees, as the compiler serialized it."""
    stage = next(DENSE.glob("*.after_priority-fusion.*.hlo.pb"))
    module = protobuf["HloProto"].FromString(stage.read_bytes()).hlo_module
    names = {kernel.name for kernel in explain_module(open_dump(DENSE).modules[0]).kernels}
    (actual,) = (
        instruction
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.name in names and instruction.name.startswith("gemm_fusion")
    )
    return actual


def write_log(protobuf, dump, instruction, results, name="autotune_logs.txt"):
    logs = protobuf["AutotuningLogs"]()
    add_log(protobuf, logs, instruction, results)
    (dump / name).write_text(protobuf.text(logs))


RESULTS = [
    {"nanos": 14_900, "gemm": {"algorithm": 7}},
    {"nanos": 13_000, "triton": {"block_m": 64}},
    {"nanos": 12_100, "triton": {"block_m": 32}},
    {"failure": (3, "no space"), "triton": {"block_m": 256}},
]


def test_a_kernel_has_what_was_measured(protobuf, dump):
    instruction = fusion_with_dot(protobuf)
    write_log(protobuf, dump, instruction, RESULTS)
    (tuned,) = explain_module(open_dump(dump).modules[0]).find_all(Autotuned)
    assert tuned.instruction == tuned.kernel == instruction.name
    assert [
        (generator.generator, generator.best_us, generator.failed) for generator in tuned.generators
    ] == [
        ("Triton", 12.1, 1),
        ("cuBLAS", 14.9, 0),
    ]
    assert tuned.margin == pytest.approx(14.9 / 12.1)
    assert not tuned.near_tie


def test_generators_within_a_twentieth_are_a_near_tie(protobuf, dump):
    results = [{"nanos": 100, "gemm": {}}, {"nanos": 104, "triton": {}}]
    write_log(protobuf, dump, fusion_with_dot(protobuf), results)
    (tuned,) = explain_module(open_dump(dump).modules[0]).find_all(Autotuned)
    assert tuned.near_tie


def test_instructions_of_other_modules_are_left_out(protobuf, dump):
    instruction = fusion_with_dot(protobuf)
    instruction.shape.dimensions[0] += 1
    write_log(protobuf, dump, instruction, RESULTS)
    (tuned,) = explain_module(open_dump(dump).modules[0]).find_all(Autotuned)
    assert not tuned.candidates


def test_without_a_card_the_first_that_compiles_is_chosen(samples):
    (tuned,) = samples.facts("h100/dense").find_all(Autotuned)
    assert (tuned.basis, tuned.choice, tuned.kernel) == ("first", "Triton", "gemm_fusion_dot")
    assert tuned.configuration.split()[:3] == ["block_k=16", "block_m=16", "block_n=8"]
    (section,) = brief(samples.facts("h100/dense"))
    assert "nothing was timed" in str(section.summary)


def test_calls_of_libraries_have_their_algorithms(samples):
    (tuned,) = samples.facts("h100/convolution").find_all(Autotuned)
    assert (tuned.choice, tuned.configuration) == ("cuDNN", "algo_id=-1 math_type=DEFAULT_MATH")
    choices = samples.facts("h100-without-triton-gemm/projections").find_all(Autotuned)
    assert [entry.choice for entry in choices] == 5 * ["cuBLAS"]


def test_a_damaged_log_is_one_problem(dump):
    (dump / "autotune_logs.txt").write_text("logs { instr {")
    explanation = explain(open_dump(dump))
    (facts,) = explanation.modules
    assert facts.find_all(Autotuned) == ()
    assert facts.kernels
    assert sum("autotune_logs.txt" in problem for problem in explanation.problems) == 1


def test_the_text_names_times_and_failures(protobuf, dump):
    write_log(protobuf, dump, fusion_with_dot(protobuf), RESULTS, "autotuning-log.textproto")
    facts = explain_module(open_dump(dump).modules[0])
    console = Console(width=100, record=True, file=io.StringIO())
    print_sections(sheet(facts, None), console)
    text = " ".join(console.export_text().split())
    assert "measured: Triton 12.1 µs (3 candidates, 1 failed), cuBLAS 14.9 µs (1 candidate)" in text
    assert "1.23 times apart" in text
    assert "1 candidate failed to run: no space" in text


# As the compiler writes this fusion (xla/service/gpu/autotuning/autotune_cache_key.cc).
_FUSION = """{
  tmp_0 = f32[256,4,128]{2,1,0} parameter(0)
  tmp_1 = f32[4,128,1024]{2,1,0} parameter(1)
  ROOT tmp_2 = f32[4,256,1024]{2,1,0} \
dot(f32[256,4,128]{2,1,0} tmp_0, f32[4,128,1024]{2,1,0} tmp_1), lhs_batch_dims={1}
}"""


def results_of(hlo):
    entry = f"hlo: {json.dumps(hlo)} result {{ run_time {{ nanos: 31744 }} triton {{ }} }}"
    return f"version: 3 results {{ {entry} }}"


def test_results_say_how_long_the_choice_took(dump):
    for name, expected in ((_FUSION, 31.744), (_FUSION.replace("1024", "512"), None)):
        (dump / "autotune_results.txtpb").write_text(results_of(name))
        (tuned,) = explain_module(open_dump(dump).modules[0]).find_all(Autotuned)
        assert tuned.choice_us == expected
        assert tuned.basis == ("measured" if expected else "first")
