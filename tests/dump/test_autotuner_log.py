import pytest
from autotuner_logs import Protobuf, add_log

from fusionscope.dump.autotuner_log import (
    Candidate,
    TunedInstruction,
    read_autotuner_log,
    read_autotuner_results,
)
from fusionscope.errors import UnusableInput

FILE = "autotune_logs.txt"


@pytest.fixture
def protobuf():
    return Protobuf()


def instruction(protobuf, name="gemm_fusion_dot.1", opcode="fusion"):
    shape = protobuf["ShapeProto"](element_type=11, dimensions=[128, 64])
    return protobuf["HloInstructionProto"](name=name, opcode=opcode, shape=shape)


def test_candidates_have_generator_settings_time_and_failure(protobuf):
    logs = protobuf["AutotuningLogs"]()
    results = [
        {"nanos": 12_100, "triton": {"block_m": 64, "block_n": 32, "num_warps": 4}},
        {"nanos": 1_000_014_900, "gemm": {"algorithm": 7}, "scratch_bytes": 4096},
        {"failure": (2, "differs at 3"), "triton": {"block_m": 16}},
        {"nanos": 15_000, "other": "NATIVE_EMITTER"},
    ]
    add_log(protobuf, logs, instruction(protobuf), results)
    (tuned,) = read_autotuner_log(protobuf.text(logs).encode(), FILE)
    assert (tuned.name, tuned.shape) == ("gemm_fusion_dot.1", "f32[128,64]")
    assert tuned.candidates == (
        Candidate(
            generator="Triton",
            configuration="block_m=64 block_n=32 num_warps=4",
            time_us=12.1,
            scratch_bytes=0,
        ),
        Candidate(
            generator="cuBLAS", configuration="algorithm=7", time_us=1_000_014.9, scratch_bytes=4096
        ),
        Candidate(
            generator="Triton",
            configuration="block_m=16",
            time_us=None,
            scratch_bytes=0,
            failure="gave another result than the reference: differs at 3",
        ),
        Candidate(
            generator="NATIVE_EMITTER", configuration="block_y=4", time_us=15.0, scratch_bytes=0
        ),
    )


def test_profiles_of_newer_compilers_have_the_same(protobuf):
    profiles = protobuf["AllRawConfigProfiles"](device="699b92c0fb30cb16", codegen_version="1")
    tuned = profiles.instruction_profiles.add(
        hlo_text="%fusion.1 = (bf16[8,4]{1,0}, s8[0]{0}) fusion(%x), kind=kCustom, calls=%f"
    )
    library = tuned.config_profiles.add(scratch_bytes=4096)
    library.config.backend = 13
    library.config.backend_config.gemm.algorithm = 7
    library.run_time.FromNanoseconds(14_900)
    failed = tuned.failed_configs.add(kind=1, message="no space")
    failed.config.backend = 2
    failed.config.backend_config.triton.block_m = 64
    text = protobuf.text(profiles)
    assert read_autotuner_log((text + text).encode(), FILE) == 2 * (
        TunedInstruction(
            name="fusion.1",
            shape="(bf16[8,4]{1,0}, s8[0]{0})",
            candidates=(
                Candidate(
                    generator="cuBLAS",
                    configuration="algorithm=7",
                    time_us=14.9,
                    scratch_bytes=4096,
                ),
                Candidate(
                    generator="Triton",
                    configuration="block_m=64",
                    time_us=None,
                    scratch_bytes=0,
                    failure="failed to compile: no space",
                ),
            ),
        ),
    )


def test_tuple_shapes_are_written_as_in_hlo(protobuf):
    array = protobuf["ShapeProto"](element_type=16, dimensions=[2, 3])
    scalar = protobuf["ShapeProto"](element_type=1)
    inner = protobuf["ShapeProto"](element_type=13, tuple_shapes=[scalar])
    shape = protobuf["ShapeProto"](element_type=13, tuple_shapes=[array, inner])
    logs = protobuf["AutotuningLogs"]()
    add_log(protobuf, logs, protobuf["HloInstructionProto"](name="call", shape=shape), [])
    (tuned,) = read_autotuner_log(protobuf.text(logs).encode(), FILE)
    assert tuned.shape == "(bf16[2,3], (pred[]))"


def test_a_log_appended_to_is_one_list(protobuf):
    texts = []
    for name in ("first", "second"):
        logs = protobuf["AutotuningLogs"]()
        add_log(protobuf, logs, instruction(protobuf, name), [{"nanos": 5, "gemm": {}}])
        texts.append(protobuf.text(logs))
    actual = read_autotuner_log("".join(texts).encode(), FILE)
    assert [item.name for item in actual] == ["first", "second"]


def test_an_empty_log_has_no_instructions():
    assert read_autotuner_log(b"", FILE) == ()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"pass_metadata { }", "found pass_metadata, expected logs"),
        (b"logs { results { run_time { nanos: 5", "ends inside run_time"),
        (
            b"logs { results { run_time { nanos: many } } }",
            "nanos is many, expected a whole number",
        ),
        (b"\x80\x81", "is not text"),
    ],
)
def test_other_content_is_refused(content, expected):
    with pytest.raises(UnusableInput, match=expected):
        read_autotuner_log(content, FILE)


def test_results_have_the_text_of_the_instruction_and_the_choice():
    text = (
        'version: 3 results { device: "CUDA: 9.0" hlo: "{\\n  ROOT tmp_0 = f32[] dot()\\n}" '
        "result { run_time { nanos: 31744 } triton { block_m: 32 } } }"
    )
    (result,) = read_autotuner_results(text.encode(), FILE)
    assert result.hlo == "{\n  ROOT tmp_0 = f32[] dot()\n}"
    assert (result.candidate.generator, result.candidate.time_us) == ("Triton", 31.744)


def test_newer_results_do_not_say_for_what_they_are():
    text = 'entries { key { target { hlo_fingerprint: "c77b" } } value { } }'
    assert read_autotuner_results(text.encode(), FILE) == ()


def test_another_file_is_no_results():
    with pytest.raises(UnusableInput, match="found logs, expected results"):
        read_autotuner_results(b"logs { }", FILE)
