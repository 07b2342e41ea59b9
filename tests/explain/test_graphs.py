"""Launches in CUDA graphs: a loop of 256 rounds, each one graph."""

from __future__ import annotations

from pathlib import Path

from fusionscope.dump import open_dump
from fusionscope.dump.thunks import CommandBuffer, read_command_buffers
from fusionscope.explain import explain

DUMP = Path(__file__).parent / "data" / "graphs"


def test_a_graph_in_a_loop_is_launched_in_each_round() -> None:
    (module,) = explain(open_dump(DUMP)).modules
    assert module.graphs is not None
    # Four kernels in the body, one of them with two thunks; the condition is outside of the graph.
    assert (module.graphs.graphs, module.graphs.launches) == (256, 4 * 256)


def test_without_the_metadata_of_thunks_nothing_is_said(tmp_path) -> None:
    for file in DUMP.iterdir():
        if "thunk_metadata" not in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (module,) = explain(open_dump(tmp_path)).modules
    assert module.graphs is None


def test_what_is_in_a_command_buffer_is_indented() -> None:
    text = b"""\
000: kCommandBuffer [source       | next=003 (1)]
    001: kCustomKernel [source | next=002 (1)] one grid: [1, 1, 1] threads: [1, 1, 1]
    002: kWhile [prev=001 (1) | sink]
condition:
        004: kCustomKernel [source | sink] less grid: [1, 1, 1] threads: [1, 1, 1]
  body:
        005: kCustomKernel [source | sink] more grid: [1, 1, 1] threads: [1, 1, 1]
003: kSequential [prev=000 (1) | sink] 006: kCopy [source | sink] kCopy
"""
    assert read_command_buffers(text, "thunks") == (CommandBuffer((1, 2, 4, 5), (1, 2), (2,)),)
