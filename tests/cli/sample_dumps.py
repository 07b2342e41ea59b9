"""Sample dumps for the tests of commands, whole, hostile and damaged, and what they print."""

import gzip
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DUMPS = ROOT / "samples" / "dumps"
GPU, CPU, TPU = (DUMPS / name / "concatenate" for name in ("h100", "cpu", "tpu-v5e"))


def text_of(file: Path) -> bytes:
    content = file.read_bytes()
    return gzip.decompress(content) if file.suffix == ".gz" else content


def unpacked(dump: Path) -> dict[str, bytes]:
    return {file.name.removesuffix(".gz"): text_of(file) for file in sorted(dump.iterdir())}


def write(directory: Path, files: dict[str, bytes]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


@cache
def schema(command: str) -> dict[str, Any]:
    text = (ROOT / "docs" / "schema" / f"{command}.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def parts(command: str, part: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts right below one of a schema, with their paths: `modules[].name`, `flags.*`."""
    if "$ref" in part:
        type_ = schema(command)["$defs"][part["$ref"].rpartition("/")[2]]
        for name, field in type_.get("properties", {}).items():
            yield f"{path}.{name}".removeprefix("."), field
    for choice in part.get("anyOf", ()):
        yield from parts(command, choice, path)
    if part.get("items"):
        yield f"{path}[]", part["items"]
    if isinstance(part.get("additionalProperties"), dict):
        yield f"{path}.*", part["additionalProperties"]


def documented(command: str) -> set[str]:
    """The fields, elements of lists and values of tables of what a command prints."""
    paths: set[str] = set()
    pending = [("", schema(command))]
    while pending:
        path, part = pending.pop()
        below = list(parts(command, part, path))
        paths.update(path for path, _ in below)
        pending += below
    return paths


def keys(command: str, *documents: Any) -> set[str]:
    """The same of what it printed."""
    paths: set[str] = set()
    pending = [("", schema(command), document) for document in documents]
    while pending:
        path, part, value = pending.pop()
        below = dict(parts(command, part, path))
        if isinstance(value, list | tuple):
            values = [(f"{path}[]", element) for element in value]
        elif isinstance(value, dict):
            values = [(f"{path}.{name}".removeprefix("."), inner) for name, inner in value.items()]
            if f"{path}.*" in below:
                values = [(f"{path}.*", inner) for _, inner in values]
        else:
            continue
        paths.update(place for place, _ in values)
        pending += ((place, below.get(place, {}), inner) for place, inner in values)
    return paths


def unlike_documented(command: str, *documents: Any, besides: tuple[str, ...] = ()) -> set[str]:
    """What a command printed and its schema lacks, and the other way around."""
    unlike = keys(command, *documents) ^ documented(command)
    return {path for path in unlike if not path.startswith(besides)}


CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
HOSTILE = "\x1b[31mred\x07\x9b2J\u202e</td><script>alert(1)</script>|`x`\r"


def hostile_files(dump: Path) -> dict[str, bytes]:
    """A dump whose operations, source files and flags are named to do harm."""
    files = {}
    for name, content in unpacked(dump).items():
        if name.endswith(".txt"):
            text = content.decode()
            text = text.replace('op_name="jit(program)', f'op_name="{HOSTILE}')
            text = text.replace('"samples/programs/', f'"{HOSTILE}/')
            content = text.encode()
        elif name.endswith("debug_options"):
            content += f'\nxla_disable_hlo_passes: "{HOSTILE}"\n'.encode()
        files[name.replace("jit_program", "jit_\x1b[31m<b>\u202e")] = content
    return files


def on_a_terminal(*arguments: str | Path, **environment: str) -> bytes:
    """What a command prints where standard output is a terminal."""
    leader, follower = pty.openpty()
    plain = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "TERM")}
    process = subprocess.Popen(
        [sys.executable, "-m", "fusionscope", *arguments],
        cwd=ROOT,
        stdout=follower,
        env={**plain, "TERM": "xterm", **environment},
    )
    os.close(follower)
    printed = b""
    try:
        while chunk := os.read(leader, 1 << 16):
            printed += chunk
    except OSError:  # the other side has closed
        pass
    os.close(leader)
    assert process.wait() == 0
    return printed
