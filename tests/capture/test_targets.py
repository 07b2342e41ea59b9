"""What a user names as program, argument and device."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionscope import UnusableInput
from fusionscope.capture import child
from fusionscope.capture.description import describe_target
from fusionscope.capture.targets import Argument, ProgramKind, read_program, read_target
from fusionscope.dump.device import known_device, read_device

CARDS = "p100 v100 a100 a100-40gb a6000 h100 h200 b200 gb200 b300 gb300 mi250 mi300x mi350x".split()


@pytest.mark.parametrize("name", CARDS)
def test_a_description_says_all_that_the_table_does(name: str) -> None:
    device = known_device(name)
    assert read_device(describe_target(device).encode(), name) == device


def test_a_name_may_hold_what_ends_a_text() -> None:
    device = read_device(rb'gpu_device_info { name: "a \"b\\" } platform_name: "CUDA"', "x")
    assert device.name == 'a "b\\'
    assert read_device(describe_target(device).encode(), "x").name == device.name


@pytest.mark.parametrize(
    ("words", "name", "platform", "is_here"),
    [
        ("cpu", "cpu", "cpu", True),
        ("gpu", "gpu", "gpu", True),
        ("h100", "h100", "cuda", False),
        ("mi300x", "mi300x", "rocm", False),
        ("tpu", "tpu", "tpu", False),
        ("tpu:v5e", "tpu-v5e", "tpu", False),
        ("tpu:v6e:2x2", "tpu-v6e-2x2", "tpu", False),
    ],
)
def test_devices_are_named(words: str, name: str, platform: str, is_here: bool) -> None:
    target = read_target(words)
    assert (target.name, target.platform, target.is_here) == (name, platform, is_here)


def test_a_topology_has_one_chip_where_it_names_none() -> None:
    assert read_target("tpu").topology == "v5e:1x1"
    assert read_target("tpu:v6e").topology == "v6e:1x1"
    assert read_target("tpu:v6e:2x2").topology == "v6e:2x2"


def test_a_description_of_the_users_own_is_taken_as_it_is(tmp_path: Path) -> None:
    text = describe_target(known_device("h100")).replace(
        "memory_bandwidth: 3", "memory_bandwidth: 9"
    )
    file = tmp_path / "faster.txtpb"
    file.write_text("# mine\n" + text)
    target = read_target(str(file))
    assert (target.name, target.platform) == ("faster", "cuda")
    assert target.description == file.read_text()


def test_a_folder_or_a_file_with_the_name_of_a_card_is_not_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "h100").mkdir()
    (tmp_path / "a100").write_text("no description")
    monkeypatch.chdir(tmp_path)
    for name in ("h100", "a100"):
        assert read_target(name).description == describe_target(known_device(name))


@pytest.mark.parametrize("words", ["h9000", "", "nowhere.txtpb", "bmg"])
def test_an_unknown_device_is_an_error_of_one_line(words: str) -> None:
    with pytest.raises(UnusableInput) as error:
        read_target(words)
    assert "\n" not in str(error.value)


def test_programs_are_named(tmp_path: Path) -> None:
    python, text = tmp_path / "model.py", tmp_path / "step.mlir"
    python.touch()
    text.write_text("module @jit_f attributes {mhlo.num_partitions = 8 : i32} {}")
    actual = read_program(f"{python}:step", ["f32[128, 256]", "pred[]"])
    assert (actual.kind, actual.file, actual.name) == (ProgramKind.FUNCTION, python, "step")
    assert actual.arguments == (Argument("f32", (128, 256)), Argument("pred", ()))
    actual = read_program("package.model:Model.step")
    assert (actual.module, actual.name, actual.arguments) == ("package.model", "Model.step", None)
    actual = read_program(str(text))
    assert (actual.kind, actual.partitions) == (ProgramKind.STABLEHLO, 8)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("", []),
        ("model", []),
        ("nothing.py:f", []),
        ("nothing.mlir", []),
        ("1a.b:f", []),
        ("a.b:f", ["f32"]),
        ("a.b:f", ["f32[8,]"]),
        ("a.b:f", ["f32[8,x]"]),
        ("a.b:f", ["f32[8 8]"]),
        pytest.param("a.b:f", [f"f32[{'9' * 5000}]"], id="long size"),
        ("a.b:f", ["[8]"]),
    ],
)
def test_what_is_no_program_is_an_error_of_one_line(words: str, arguments: list[str]) -> None:
    with pytest.raises(UnusableInput) as error:
        read_program(words, arguments)
    assert "\n" not in str(error.value)


def test_a_file_has_arguments_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "step.hlo"
    file.write_text("HloModule m")
    with pytest.raises(UnusableInput, match="arguments of its own"):
        read_program(str(file), ["f32[8]"])


@pytest.mark.parametrize(
    ("mlir", "hlo"),
    [
        ("tensor<f32>", "f32[]"),
        ("tensor<64x128xbf16>", "bf16[64,128]"),
        ("tensor<3xi1>", "pred[3]"),
        ("tensor<3xi32>", "s32[3]"),
        ("tensor<3xui8>", "u8[3]"),
        ("tensor<2x2xcomplex<f32>>", "c64[2,2]"),
        ("tensor<8xf8E4M3FN>", "f8e4m3fn[8]"),
        ("!stablehlo.token", "!stablehlo.token"),
    ],
)
def test_types_of_arguments_are_shapes_of_hlo(mlir: str, hlo: str) -> None:
    assert child._tensor_shape(mlir) == hlo
