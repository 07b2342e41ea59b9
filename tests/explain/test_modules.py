"""Dumps of several modules: which are the user's."""

from __future__ import annotations

import shutil
from pathlib import Path

from fusionscope.dump import open_dump
from fusionscope.explain import Explanation, explain
from fusionscope.explain.modules import rank
from fusionscope.explain.selection import Selection

SAMPLES = Path(__file__).parents[2] / "samples/dumps"
FRAMES = """
FileNames
1 "train.py"

FunctionNames
1 "main"
2 "trained.<locals>.step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=9 end_line=9 column=1 end_column=2}
2 {file_name_id=1 function_name_id=2 line=3 end_line=3 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

"""


def write(directory: Path, number: int, name: str, size: int, frame: int | None) -> None:
    place = f" stack_frame_id={frame}" if frame else ""
    metadata = f', metadata={{op_name="{name}/tanh"{place}}}'
    text = (
        f"HloModule {name}\n{FRAMES if frame else ''}\nENTRY main {{\n"
        f"  x = f32[{size}]{{0}} parameter(0)\n"
        f"  ROOT y = f32[{size}]{{0}} tanh(x){metadata}\n}}\n"
    )
    (directory / f"module_{number:04}.{name}.cpu_after_optimizations.txt").write_text(text)


def lengthen(directory: Path, module: str) -> None:
    file = directory / f"{module}.cpu_after_optimizations.txt"
    file.write_text(file.read_text() + "\n" * 1000)


def table(found: Explanation) -> list[tuple[str, bool]]:
    return [(row.name, row.is_helper) for row in found.table]


def test_what_jax_compiled_for_itself_comes_last(tmp_path: Path) -> None:
    write(tmp_path, 0, "jit__normal", 1 << 20, frame=1)  # called in main, and not main
    write(tmp_path, 1, "jit_convert_element_type", 1 << 21, frame=None)
    write(tmp_path, 2, "jit_step", 1 << 10, frame=2)
    write(tmp_path, 3, "jit__lambda_", 1 << 9, frame=1)
    actual = explain(open_dump(tmp_path))
    assert table(actual) == [
        ("jit_step", False),
        ("jit__lambda_", False),
        ("jit_convert_element_type", True),
        ("jit__normal", True),
    ]
    assert [module.name for module in actual.modules] == ["jit_step", "jit__lambda_"]
    first = explain(open_dump(tmp_path), Selection(most_modules=1))
    assert [module.name for module in first.modules] == ["jit_step"]
    assert len(first.folded) == 3


def test_without_call_stacks_all_are_the_users(tmp_path: Path) -> None:
    write(tmp_path, 0, "jit__normal", 1 << 20, frame=None)
    write(tmp_path, 1, "jit_step", 1 << 10, frame=None)
    actual = explain(open_dump(tmp_path))
    assert table(actual) == [("jit__normal", False), ("jit_step", False)]


def test_a_folder_of_dumps_names_devices_and_counts_every_column(tmp_path: Path) -> None:
    for kind, program in (("cpu", "softmax"), ("h100", "softmax"), ("h100", "reductions")):
        shutil.copytree(SAMPLES / kind / program, tmp_path / f"{kind}-{program}")
    actual = explain(open_dump(tmp_path), Selection(most_modules=1))
    assert [row.device for row in actual.table] == ["H100 SXM", "H100 SXM", "CPU"]
    times = [row.time_us for row in actual.table[:2]]
    assert times == sorted(times, reverse=True)
    assert len(actual.modules) == 1
    everything = explain(open_dump(tmp_path), Selection(all_modules=True))
    refused = [
        sum(item.bytes_saved for item in module.summary.reasons.values())
        for module in everything.modules
    ]
    assert [row.refused_bytes for row in actual.table] == refused
    assert refused[0] and refused[2]


def test_the_only_module_of_a_user_is_costed_once(tmp_path: Path) -> None:
    write(tmp_path, 0, "jit_step", 1 << 10, frame=2)
    write(tmp_path, 1, "jit__normal", 1 << 20, frame=1)
    lengthen(tmp_path, "module_0000.jit_step")
    dump = open_dump(tmp_path)
    (step, normal), problems = rank(dump, None)
    assert not problems
    assert (step[0].name, step[0].launches) == ("jit_step", 0)  # its explanation tells
    assert (normal[0].name, normal[0].launches) == ("jit__normal", 1)
    assert [row.launches for row in explain(dump).table] == [1, 1]


def test_the_costliest_module_is_first_though_another_one_is_larger(tmp_path: Path) -> None:
    write(tmp_path, 0, "jit_step", 1 << 10, frame=2)
    write(tmp_path, 1, "jit_trained", 1 << 4, frame=2)
    lengthen(tmp_path, "module_0001.jit_trained")
    actual, _ = rank(open_dump(tmp_path), None)
    assert [row.launches for row, _ in actual] == [1, 1]
    assert [module.number for _, module in actual] == [0, 1]


def test_modules_for_a_cpu_are_folded_beside_those_for_a_gpu(tmp_path: Path) -> None:
    for kind in ("cpu", "h100"):
        shutil.copytree(SAMPLES / kind / "softmax", tmp_path / kind)
    actual = explain(open_dump(tmp_path))
    assert [module.backend for module in actual.modules] == ["gpu"]
    assert [row.device for row in actual.folded] == ["CPU"]
