"""The grammar itself, and how its tables are kept between runs."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fusionscope.hlo.grammar import START_RULES, check, fits

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples" / "dumps"
READ = (
    "from fusionscope.hlo import parse\n"
    "parse('HloModule m ENTRY e { ROOT p = f32[2]{0} parameter(0), new={1, x=(2)} }')"
)


def final_stages() -> list[Path]:
    return sorted(SAMPLES.glob("*/*/*after_optimizations.txt*"))


@pytest.mark.parametrize("file", final_stages()[::2], ids=lambda file: file.parent.name)
def test_it_derives_what_compilers_print(file: Path) -> None:
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    lines = content.decode().split("\n")
    assert lines[0].startswith("HloModule")
    check("header", lines[0])
    forms: set[str] = set()
    for line in lines:
        form = re.sub(r"\d+", "0", line)
        if form in forms or len(line) > 2000:
            continue
        forms.add(form)
        if line.startswith("  "):
            check("instruction", line)
        elif re.match(r"(ENTRY )?%", line):
            check("signature", line)
    assert len(forms) > 5


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("header", "HloModule m, is_scheduled=true", "HloModule m, is_scheduled=1"),
        ("signature", "ENTRY %e (p: f32[2]) -> (f32[]) {", "ENTRY %e (p: f32[2]) -> {"),
        ("footer", ', execution_thread="host"', ", execution_thread=host"),
        ("instruction", "%a = f32[<=2]{0} add(%b#1, f32[2] c)", "%a = f32[2]{} add(%b, c)"),
        ("attributes", ", dimensions={0,1}, to_apply=%f", ", dimensions={0,%f}"),
        ("attributes", ", new={[1, 2]}", ", new={[1, 2}"),
        ("layout", "{1,0:T(8,128)(2,1)S(1)}", "{1,0:T8}"),
    ],
)
def test_rules(rule: str, good: str, bad: str) -> None:
    assert fits(rule, good)
    assert not fits(rule, bad)


def test_every_rule_is_asked_for() -> None:
    grammar = (ROOT / "grammars" / "hlo.lark").read_text()
    for rule in START_RULES:
        assert re.search(rf"^{rule}:", grammar, re.MULTILINE)


def start(cache: Path) -> subprocess.Popen[bytes]:
    """A process that needs the grammar and keeps its tables in ``cache``."""
    return subprocess.Popen(
        [sys.executable, "-c", READ],
        cwd=ROOT,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        stderr=subprocess.PIPE,
    )


def finish(child: subprocess.Popen[bytes]) -> None:
    _, errors = child.communicate()
    assert (child.returncode, errors) == (0, b"")


def kept(cache: Path) -> list[Path]:
    return [path for path in (cache / "fusionscope").iterdir() if path.is_file()]


def test_tables_are_kept_as_data_that_only_the_user_writes(tmp_path: Path) -> None:
    finish(start(tmp_path))
    (file,) = kept(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    json.loads(file.read_bytes()[64:])
    written = file.stat().st_mtime_ns
    finish(start(tmp_path))
    assert kept(tmp_path)[0].stat().st_mtime_ns == written


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:1000])


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def foreign(file: Path) -> None:
    file.write_bytes(b"\x80\x04\x95" * 100)


def written_by_others(file: Path) -> None:
    """Whole, and with rules that refuse everything."""
    tables = file.read_bytes()[64:].replace(b"HloModule", b"NoModule")
    file.write_bytes(hashlib.sha256(tables).hexdigest().encode() + tables)
    file.chmod(0o666)


def replaced(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("damage", [empty, cut, flipped, foreign, written_by_others, replaced])
def test_a_damaged_cache_does_no_harm(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    finish(start(tmp_path))
    (file,) = kept(tmp_path)
    whole = file.stat().st_size
    damage(file)
    finish(start(tmp_path))
    if damage is not replaced:  # it is written anew
        assert abs(kept(tmp_path)[0].stat().st_size - whole) < 1000
        finish(start(tmp_path))


def test_no_place_for_a_cache_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    finish(start(file))
    finish(start(file / "below"))


def test_many_processes_at_once(tmp_path: Path) -> None:
    for child in [start(tmp_path) for _ in range(8)]:
        finish(child)
    assert len(kept(tmp_path)) == 1
