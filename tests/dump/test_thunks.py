"""What a GPU module launches, in each notation of the compiler."""

from __future__ import annotations

from pathlib import Path

from fusionscope.dump.thunks import Launch, read_launches

DATA = Path(__file__).parent / "data"


def launches_of(folder: str) -> tuple[Launch, ...]:
    (file,) = (DATA / folder).glob("*thunk_sequence.txt")
    return read_launches(file.read_bytes(), file.name)


def test_thunks_without_numbers_also_in_a_loop() -> None:
    launches = launches_of("h100_0.7.2")
    assert [launch.entry for launch in launches] == [
        "gemm_fusion_dot_general_1",
        "loop_multiply_fusion",
        "loop_compare_fusion",
        "loop_add_fusion_1",
        "loop_add_fusion",
        "input_reduce_fusion",
        "triton_softmax_2",
        "wrapped_iota",
        "sort_6_0",
    ]
    assert launches[0] == Launch(0, "gemm_fusion_dot_general_1", 512, 64, None, None)


def test_thunks_that_name_their_instruction() -> None:
    launches = launches_of("h100_0.9.2")
    assert launches[2] == Launch(3, "triton_softmax_2", 256, 64, None, "triton_softmax.2")
