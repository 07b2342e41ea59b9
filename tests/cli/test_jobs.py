"""--jobs: the same output, byte for byte, whatever its number."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from fusionscope.cli.main import main

DUMPS = Path(__file__).parent.parent.parent / "samples" / "dumps"
NAMES = ("reductions", "concatenate", "softmax")


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """A dump of three modules, the second of which has a stage that cannot be read."""
    folder = tmp_path_factory.mktemp("modules")
    for number, name in enumerate(NAMES):
        for path in (DUMPS / "cpu" / name).iterdir():
            if path.name.startswith("module_"):
                shutil.copy(path, folder / re.sub(r"module_\d+", f"module_{number:04}", path.name))
    (damaged,) = folder.glob("module_0001.*.after_fusion.*.txt")
    damaged.write_text(damaged.read_text().replace("f32[", "f33[", 1))
    return folder


@pytest.fixture
def run(monkeypatch, capfd):
    def call(*arguments: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["fusionscope", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        return leaving.value.code, *capfd.readouterr()

    return call


@pytest.mark.parametrize("option", [pytest.param("--all", marks=pytest.mark.slow), "--format=json"])
def test_explain_of_several_modules(run, modules, option):
    command = ("explain", modules, "--no-cache", "--no-try", option)
    first = run(*command)
    assert run(*command, "--jobs", "2") == first
    assert "f33" in first[1] + first[2]
    assert first[0] == 0


@pytest.mark.parametrize("format_name", ["text", pytest.param("json", marks=pytest.mark.slow)])
def test_verify_of_several_modules(run, modules, format_name):
    command = ("verify", str(modules), "--format", format_name)
    first = run(*command)
    assert run(*command, "--jobs", "2") == first
    assert "f33" in first[1] + first[2]


def test_check_of_several_dumps(run, tmp_path):
    expect = tmp_path / "fusions.toml"
    expect.write_text("[[expect]]\nkernels = 2\n")
    dumps = [str(DUMPS / "cpu" / name) for name in NAMES]
    command = ("check", *dumps, "--expect", str(expect), "--format", "json")
    assert run(*command, "--jobs", "3") == run(*command)
