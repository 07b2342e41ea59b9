"""Sample dumps for the tests of commands, whole, hostile and damaged, and what they print."""

import gzip
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

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


def keys(value: object, path: str = "") -> set[str]:
    """Where values are: `modules[].name`."""
    if isinstance(value, dict):
        here = {path} if path else set()
        return here.union(*(keys(v, f"{path}.{k}" if path else k) for k, v in value.items()))
    if isinstance(value, list):
        return {f"{path}[]"}.union(*(keys(entry, f"{path}[]") for entry in value))
    return {path}


def documented(command: str) -> set[str]:
    """Fields in the tables of docs/json.md, as far as they are about this command."""
    section = (ROOT / "docs" / "json.md").read_text().partition(f"\n## {command}\n")[2]
    return set(re.findall(r"^\| `([^`]+)` \|", section.partition("\n## ")[0], re.MULTILINE))


def unlike_documented(command: str, found: set[str]) -> set[str]:
    """What this command printed and docs/json.md lacks, and the other way around."""
    described = documented(command)
    whole = {
        path for path in found if not any(o.startswith((f"{path}.", f"{path}[")) for o in found)
    }
    lists = {f"{path}[]" for path in described} | {path.removesuffix("[]") for path in described}
    return (whole - described - lists) | (described - found)


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
