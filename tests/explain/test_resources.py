"""Registers, spills and occupancy: a kernel for an H100 that spills, and what ptxas says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fusionscope.cli.main import cli
from fusionscope.dump import open_dump
from fusionscope.dump.cache import user_cache
from fusionscope.dump.device import known_device
from fusionscope.dump.thunks import read_launches
from fusionscope.errors import UnusableInput
from fusionscope.explain import Selection, explain
from fusionscope.findings.resources.ptxas import assemble, find_ptxas
from fusionscope.gpu.occupancy import occupancy

DUMP = Path(__file__).parent / "data" / "spills"
OLDER = Path(__file__).parent / "data" / "older_thunks"


def run(*words: str) -> str:
    return CliRunner().invoke(cli, ["explain", str(DUMP), "--resources", "--no-try", *words]).stdout


def script(directory: Path, body: str) -> str:
    """A program that stands for ptxas."""
    file = directory / "ptxas"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def recorded(monkeypatch) -> None:
    monkeypatch.setenv("PTXAS", str(DUMP / "ptxas"))


def test_a_kernel_that_spills_is_over_fused(recorded) -> None:
    (module,) = explain(open_dump(DUMP), Selection(resources=True)).modules
    (kernel,) = module.kernels
    resources = kernel.resources
    assert resources is not None
    assert (resources.registers, resources.spill_store_bytes, resources.spill_load_bytes) == (
        255,
        476,
        160,
    )
    assert (resources.blocks, resources.threads_per_block, resources.shared_bytes) == (2048, 128, 0)
    assert resources.spill_bytes == (476 + 160) * 2048 * 128
    # 255 registers are 256 of 65,536: two blocks of four warps, of 64 that fit.
    assert (resources.occupancy, resources.occupancy_limit) == (0.125, "registers")
    assert resources.assembly_ms == 3876.766
    visible = " ".join(run().split())
    assert "ptxas spent 3.88 s" in visible
    assert "1 of 1 kernel spills" in visible
    assert "over-fused: each thread spills 476 bytes and loads 160" in visible


def test_every_format_has_them(recorded) -> None:
    document = json.loads(run("--format", "json"))
    assert document["modules"][0]["kernels"][0]["resources"]["spill_load_bytes"] == 160
    table = run("--format", "markdown")
    assert "`loop_add_fusion`" in table
    assert "255 registers" in table
    assert "each thread spills 476 bytes and loads 160" in table
    assert "255 registers" in run("--kernel", "loop*")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo 'ptxas x.ptx, line 5; fatal   : Unsupported .version 9.4' >&2; exit 1", "9.4"),
        ("kill -9 $$", "does not accept"),
        ("true", "not in the dump"),
    ],
)
def test_what_ptxas_does_not_accept_is_one_line(tmp_path, monkeypatch, body, words) -> None:
    monkeypatch.setenv("PTXAS", script(tmp_path, body))
    (module,) = explain(open_dump(DUMP), Selection(resources=True)).modules
    (note,) = [note for note in module.notes if note.startswith("registers and spills: ")]
    assert words in note
    assert module.kernels[0].resources is None


def test_an_answer_is_kept_by_the_text(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    calls = tmp_path / "calls"
    count = f"for each; do case $each in *.ptx) echo $each >> {calls};; esac; done"
    ptxas = Path(script(tmp_path, f"{count}\nsh {DUMP / 'ptxas'}"))
    (module,) = open_dump(DUMP).modules

    def ask(*flags: str) -> int:
        actual, problems = assemble(ptxas, module.ptx, flags=flags, cache=user_cache())
        assert actual["loop_add_fusion"].registers == 255 and not problems
        return len(calls.read_text().splitlines())

    assert (ask(), ask(), ask("-O0"), ask("-O0")) == (1, 1, 2, 2)
    for file in (tmp_path / "cache").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:-3])
    assert ask() == 3


def test_without_ptx_it_is_said_how_to_get_it(tmp_path, recorded) -> None:
    for file in DUMP.glob("module_*"):
        if ".ptx" not in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (module,) = explain(open_dump(tmp_path), Selection(resources=True)).modules
    assert any("--xla_dump_emitter_re" in note for note in module.notes)


def test_ptxas_itself_agrees() -> None:
    ptxas = find_ptxas()
    if ptxas is None:
        pytest.skip("needs ptxas")
    (module,) = open_dump(DUMP).modules
    actual, problems = assemble(ptxas, module.ptx)
    if problems and "Unsupported .version" in problems[0]:
        pytest.skip("needs a newer ptxas")
    assert not problems
    assert actual["loop_add_fusion"].registers > 128
    assert actual["loop_add_fusion"].spill_stores > 0


def test_the_notation_of_older_compilers_is_read(monkeypatch) -> None:
    monkeypatch.setenv("PTXAS", str(OLDER / "ptxas"))
    (module,) = explain(open_dump(OLDER), Selection(resources=True)).modules
    resources = {kernel.name: kernel.resources for kernel in module.kernels}
    # The launch of the softmax kernel reserves its shared memory. The file does not say how much.
    figures = {
        name: (item.registers, item.blocks, item.threads_per_block, item.shared_bytes)
        for name, item in resources.items()
    }
    assert figures == {
        "wrapped_tanh": (14, 1024, 128, 0),
        "input_reduce_fusion": (26, 8, 1024, 8320),
        "triton_softmax.2": (31, 256, 64, None),
    }
    assert {name: item.occupancy for name, item in resources.items()} == {
        "wrapped_tanh": 1.0,
        "input_reduce_fusion": 1.0,
        "triton_softmax.2": None,
    }


def test_a_launch_in_another_form_is_one_line() -> None:
    with pytest.raises(UnusableInput, match=r"thunks:2: expected a launch"):
        read_launches(b"000: kWhile [source]\n001: kKernel name grid: [1]\n", "thunks")


# Blocks on a core, by cudaOccMaxActiveBlocksPerMultiprocessor of CUDA 13.0.
@pytest.mark.parametrize(
    ("registers", "threads", "shared", "blocks"),
    [
        (16, 128, 0, {"h100": 16, "a100": 16, "v100": 16, "b200": 16}),
        (32, 1024, 0, {"h100": 2, "a100": 2, "v100": 2, "b200": 2}),
        (40, 256, 8192, {"h100": 6, "a100": 6, "v100": 6, "b200": 6}),
        (64, 1024, 33792, {"h100": 1, "a100": 1, "v100": 1, "b200": 1}),
        (96, 192, 0, {"h100": 3, "a100": 3, "v100": 3, "b200": 3}),
        (128, 96, 1, {"h100": 5, "a100": 5, "v100": 5, "b200": 5}),
        (168, 384, 0, {"h100": 1, "a100": 1, "v100": 1, "b200": 1}),
        (24, 32, 0, {"h100": 32, "a100": 32, "v100": 32, "b200": 32}),
        (32, 64, 50000, {"h100": 4, "a100": 3, "v100": 1, "b200": 4}),
        (255, 512, 0, {"h100": None, "a100": None, "v100": None, "b200": None}),
    ],
)
def test_occupancy_is_that_of_the_calculator(registers, threads, shared, blocks) -> None:
    for name, expected in blocks.items():
        actual = occupancy(known_device(name), registers, threads, shared)
        assert (actual.blocks if actual is not None else None) == expected, name
