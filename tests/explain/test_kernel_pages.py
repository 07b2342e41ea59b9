"""One kernel by itself: the sample is three lines of JAX, so all of it is known."""

from __future__ import annotations

from pathlib import Path

from fusionscope.dump import open_dump
from fusionscope.explain import ModuleFacts, Selection, explain

DUMP = Path(__file__).parents[2] / "samples" / "dumps" / "h100" / "concatenate"


def facts(kernel: str) -> ModuleFacts:
    return explain(open_dump(DUMP), Selection(kernel=kernel)).modules[0]


def test_a_kernel_by_itself() -> None:
    (page,) = facts("wrapped_tanh").kernel_pages
    (read,) = page.inputs
    assert (read.opcode, read.bytes_read) == ("parameter", 1024 * 128 * 4)
    (output,) = page.outputs
    assert output.shape == "f32[1024,128]{1,0}"
    readers = {"input_reduce_fusion", "loop_add_fusion", "input_concatenate_fusion"}
    assert set(output.readers) == readers
    assert not page.began
    (refused,) = page.ended
    assert (refused.producer.opcode, refused.consumer.opcode) == ("tanh", "concatenate")
    assert any("tanh(param_0" in line for line in page.hlo)
    assert page.sources == ("samples/programs/concatenate.py:9",)


def test_both_ends_of_a_refusal_tell_of_it() -> None:
    pages = facts("*").kernel_pages
    assert len(pages) == 5
    refused = {(pair.producer.name, pair.consumer.name) for pair in facts("*").pairs if pair.reason}
    for borders in (
        [item for page in pages for item in page.began],
        [item for page in pages for item in page.ended],
    ):
        assert {(border.producer.name, border.consumer.name) for border in borders} == refused


def test_a_name_that_is_no_kernel_has_some_near() -> None:
    module = facts("wraped_tanh")
    assert not module.kernel_pages
    assert module.near[0] == "wrapped_tanh"
