"""``fusionscope parse``, run as users run it."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest
from sample_dumps import unlike_documented

from fusionscope.hlo import parse

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples" / "dumps"

TEXT = """HloModule by_hand, is_scheduled=true

FileNames
1 "model.py"

FunctionNames
1 "forward"

FileLocations
1 {file_name_id=1 function_name_id=1 line=42 end_line=42 column=7 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%scale (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %double = f32[8]{0} add(%p, %p), metadata={op_name="double" stack_frame_id=1}
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %one = f32[] constant(1)
  ROOT %scaled = f32[8]{0} fusion(%x), kind=kLoop, calls=%scale
}
"""


def run(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "fusionscope", "parse", *map(str, arguments)],
        input=stdin,
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "COLUMNS"},
        capture_output=True,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "by_hand.hlo"
    path.write_text(TEXT)
    return path


@pytest.mark.main
def test_text(file: Path) -> None:
    result = run(file)
    assert result.returncode == 0
    lines = result.stdout.decode().splitlines()
    counts = "2 computations, 5 instructions, 3 def-use edges, scheduled"
    assert lines[0] == f"module by_hand  {counts}"
    rows = [line.split() for line in lines]
    assert ["scale", "15", "2", "add"] in rows
    assert ["ENTRY", "main", "20", "3", "fusion"] in rows
    assert ["parameter", "2"] in rows
    assert ["constant", "1"] in rows
    assert max(map(len, lines)) <= 100
    assert b"\x1b" not in result.stdout


@pytest.mark.main
def test_json(file: Path) -> None:
    result = run(file, "--format", "json")
    assert result.returncode == 0
    actual = json.loads(result.stdout)
    assert actual["schema"] == "fusionscope.parse/1"
    assert (actual["name"], actual["entry"], actual["is_scheduled"]) == ("by_hand", "main", True)
    assert (actual["instructions"], actual["edges"]) == (5, 3)
    assert actual["opcodes"] == {"parameter": 2, "add": 1, "constant": 1, "fusion": 1}
    scale, main = actual["computations"]
    assert (scale["name"], scale["line"], scale["root"]) == ("scale", 15, "double")
    p, double = scale["instructions"]
    assert p["users"] == ["double"]
    assert double["operands"] == ["p", "p"]
    assert (double["opcode"], double["shape"]) == ("add", "f32[8]{0}")
    assert (double["line"], double["column"]) == (17, 3)
    assert double["source"] == [{"file": "model.py", "line": 42, "function": "forward"}]
    x, first, scaled = main["instructions"]
    assert scaled["called"] == ["scale"]
    assert scaled["attributes"] == {"kind": "kLoop", "calls": "%scale"}
    assert (first["literal"], x["literal"]) == ("1", None)


@pytest.mark.main
def test_the_module_is_written_back(file: Path) -> None:
    result = run(file, "--print")
    assert result.returncode == 0
    assert parse(result.stdout.decode()) == parse(TEXT)


def test_output_goes_to_a_file(file: Path, tmp_path: Path) -> None:
    for options in (["--format", "json"], ["--print"], []):
        visible = run(file, *options)
        target = tmp_path / "target"
        result = run(file, *options, "--output", target)
        assert (result.returncode, result.stdout) == (0, b"")
        assert target.read_bytes() == visible.stdout


def test_standard_input() -> None:
    result = run("-", "--format", "json", stdin=TEXT.encode())
    assert json.loads(result.stdout)["name"] == "by_hand"
    result = run("-", stdin=b"HloModule m\nENTRY e {\n  what\n}\n")
    assert result.returncode == 2
    assert result.stderr.startswith(b"fusionscope: <stdin>:3:")


def test_compressed_files(tmp_path: Path) -> None:
    path = tmp_path / "module.hlo.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    assert json.loads(run(path, "--format", "json").stdout)["name"] == "by_hand"


def test_files_of_editors_that_mark_their_encoding(tmp_path: Path) -> None:
    path = tmp_path / "module.hlo"
    path.write_text(TEXT, encoding="utf-8-sig")
    assert json.loads(run(path, "--format", "json").stdout)["name"] == "by_hand"


@pytest.mark.main
@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "1:1"),
        (b"import jax\n", "1:1"),
        (bytes(range(256)), "1:1"),
        (TEXT.encode()[:-40], "23:27"),
        (TEXT.replace("%p, %p", "%p, %q").encode(), "17:3"),
    ],
)
def test_what_cannot_be_used_takes_one_line(tmp_path: Path, content: bytes, place: str) -> None:
    path = tmp_path / "module.hlo"
    path.write_bytes(content)
    result = run(path)
    assert (result.returncode, result.stdout) == (2, b"")
    message = result.stderr.decode()
    assert message.startswith(f"fusionscope: {path}:{place}: ")
    assert message.count("\n") == 1
    assert message.rstrip("\n").isprintable()


def test_what_cannot_be_opened_takes_one_line(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(gzip.compress(TEXT.encode())[:-20])
    for path in (tmp_path / "missing", tmp_path, damaged):
        result = run(path)
        assert result.returncode == 2
        assert result.stderr.decode().startswith(f"fusionscope: {path}: ")
        assert result.stderr.count(b"\n") == 1
    result = run(tmp_path / "missing", "--format", "xml")
    assert result.returncode == 2


def test_names_cannot_command_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "module.hlo"
    path.write_text(
        'HloModule m\nENTRY e {\n  ROOT p = f32[2] parameter(0), metadata={op_name="\x1b[2J"}\n}\n'
    )
    for options in ([], ["--format", "json"]):
        result = run(path, *options)
        assert result.returncode == 0
        assert b"\x1b" not in result.stdout
    path.write_text("HloModule \x1b[2Jm\n")
    result = run(path)
    assert result.returncode == 2
    assert b"\x1b" not in result.stderr


def on_a_terminal(columns: int, *arguments: str | Path) -> str:
    """What the command writes where standard output is a terminal of so many columns."""
    outer, inner = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "fusionscope", "parse", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=inner,
        stderr=subprocess.DEVNULL,
    ) as child:
        os.close(inner)
        output = b""
        while select.select([outer], [], [], 30)[0]:
            try:
                block = os.read(outer, 65536)
            except OSError:  # closed on the other side
                break
            if not block:
                break
            output += block
        os.close(outer)
    assert child.returncode == 0
    return output.decode()


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_lines_fit_the_terminal(columns: int) -> None:
    file = next((SAMPLES / "h100" / "concatenate").glob("*gpu_after_optimizations.txt*"))
    visible = re.sub(r"\x1b\[[\d;]*m", "", on_a_terminal(columns, file))
    assert "module jit_program" in visible
    assert max(len(line.rstrip()) for line in visible.splitlines()) <= columns


def test_a_reader_that_stops_early_is_no_error(file: Path) -> None:
    command = f"{sys.executable} -m fusionscope parse --format json {file} | head -c 10"
    result = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True)
    assert (result.stdout[:2], result.stderr) == (b"{\n", b"")


# Fields


def test_every_field_is_documented() -> None:
    file = next((SAMPLES / "cpu" / "softmax").glob("*cpu_after_optimizations.txt*"))
    assert not unlike_documented("parse", json.loads(run(file, "--format", "json").stdout))
