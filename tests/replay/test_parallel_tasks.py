"""Parts of large kernels, against those that the compiler made on a machine with two cores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusionscope import parse
from fusionscope.dump import open_dump
from fusionscope.graph.mutable import MutableModule, to_module
from fusionscope.hlo import Module
from fusionscope.rerun.parallel_tasks import assign_tasks, find_parts

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
CPU = sorted(DUMPS.glob("cpu*/*"))
THREADS = 2  # of the machine that made the samples


def parts(module: Module) -> dict[str, list[str]]:
    actual = {}
    for instruction in module.walk():
        config = instruction.attribute("backend_config")
        if isinstance(config, dict) and config.get("outer_dimension_partitions"):
            actual[instruction.name] = config["outer_dimension_partitions"]
    return actual


@pytest.mark.parametrize("dump", CPU, ids=lambda dump: f"{dump.parent.name}-{dump.name}")
def test_kernels_have_the_parts_that_the_compiler_gave_them(dump: Path) -> None:
    (module,) = open_dump(dump).modules
    if not module.shows_all_passes:
        pytest.skip("a dump without all stages")
    index = next(
        n for n, stage in enumerate(module.stages) if stage.name.pipeline == "copy-insertion"
    )
    output = module.read(module.stages[index - 1])
    graph = MutableModule(output)
    assign_tasks(graph, 1)
    bare = to_module(graph)
    assert not parts(bare)
    graph = MutableModule(bare)
    assign_tasks(graph, THREADS)
    assert parts(to_module(graph)) == parts(output)


def test_some_sample_has_parts() -> None:
    (module,) = open_dump(DUMPS / "cpu" / "attention").modules
    assert module.final is not None
    assert len(parts(module.read(module.final))) > 1


def kernel(shape: str, opcode: str = "add(x, x)", threads: int = 16) -> list[int]:
    text = (
        f"HloModule m\n\nENTRY main {{\n  x = {shape} parameter(0)\n  ROOT y = {shape} {opcode}\n}}"
    )
    return find_parts(MutableModule(parse(text)).entry.root, threads)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        # 256 KiB a thread, and as many threads as the root of sixteen, for what memory bounds.
        ("f32[1024]", []),
        ("f32[65536]", [3]),
        ("f32[1048576]", [4]),
        ("f32[2,524288]", [2, 2]),
        ("f32[524288,2]{0,1}", [2, 2]),
        ("f32[3,400000]", [2, 2]),
    ],
)
def test_what_memory_bounds_has_few_parts(shape: str, expected: list[int]) -> None:
    assert kernel(shape) == expected


def test_what_updates_in_place_has_one() -> None:
    text = """HloModule m

ENTRY main {
  x = f32[4000000] parameter(0)
  u = f32[8] parameter(1)
  i = s32[] parameter(2)
  ROOT y = f32[4000000] dynamic-update-slice(x, u, i)
}"""
    assert find_parts(MutableModule(parse(text)).entry.root, 16) == []


def test_a_library_keeps_its_own_configuration() -> None:
    (module,) = open_dump(DUMPS / "cpu" / "attention").modules
    assert module.final is not None
    graph = MutableModule(module.read(module.final))
    assign_tasks(graph, 16)
    kinds = [
        json.loads(instruction.attributes["backend_config"])["fusion_config"]["kind"]
        for instruction in graph.walk()
        if instruction.is_custom_fusion
    ]
    assert kinds == ["__ynn_fusion"] * len(kinds) != []
