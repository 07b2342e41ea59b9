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

from fusionscope.errors import UnusableInput
from fusionscope.hlo.grammar import START_RULES, derive

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples" / "dumps"
READ = (
    "from fusionscope.hlo import parse\n"
    "parse('HloModule m\\n\\nENTRY e {\\n  ROOT p = f32[2]{0} parameter(0), new={1, x=(2)}\\n}\\n')"
)


def final_stages() -> list[Path]:
    return sorted(SAMPLES.glob("*/*/*after_optimizations.txt*"))


@pytest.mark.parametrize("file", final_stages()[::2], ids=lambda file: file.parent.name)
def test_it_derives_what_compilers_print(file: Path) -> None:
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    lines = content.decode().split("\n")
    assert lines[0].startswith("HloModule")
    derive("header", lines[0])
    forms: set[str] = set()
    for line in lines:
        form = re.sub(r"\d+", "0", line)
        if form in forms or len(line) > 2000:
            continue
        forms.add(form)
        if line.startswith("  "):
            derive("instruction", line)
        elif re.match(r"(ENTRY )?%", line):
            derive("opening", line)
    assert len(forms) > 5


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("header", "HloModule m, is_scheduled=true", "HloModule m, is_scheduled=1"),
        ("opening", "ENTRY %e (p: f32[2]) -> (f32[]) {", "ENTRY %e (p: f32[2]) -> {"),
        ("signature", "(p: f32[2], q: (s32[])) -> (f32[])", "(p: f32[2]) -> f32[2], p"),
        ("footer", ', execution_thread="host"', ", execution_thread=host"),
        ("instruction", "%a = f32[<=2]{0} add(%b#1, f32[2] c)", "%a = f32[2]{} add(%b, c)"),
        ("attributes", ", dimensions={0,1}, to_apply=%f", ", dimensions={0,%f}"),
        ("attributes", ", new={[1, 2]}", ", new={[1, 2}"),
        ("attribute", "window={size=3x3 pad=1_1x-1_2}", "window={size=3x}"),
        ("attribute", "slice={[0:8:2], [1:4]}", "slice={[0:8:2], [1]}"),
        ("attribute", "padding=0_1x2_2_1", "padding=0x1"),
        ("shape", "(f32[2]{0}, (s32[], b(f32[<=3])))", "(f32[2]{0},)"),
        ("layout", "{1,0:T(8,128)(2,1)S(1)}", "{1,0:T8}"),
    ],
)
def test_rules(rule: str, good: str, bad: str) -> None:
    derive(rule, good)
    with pytest.raises(UnusableInput):
        derive(rule, bad)


def test_every_rule_is_asked_for() -> None:
    grammar = (ROOT / "grammars" / "hlo.lark").read_text()
    for rule in START_RULES:
        assert re.search(rf"^{rule}:", grammar, re.MULTILINE)


def start(cache: Path, program: str = READ) -> subprocess.Popen[bytes]:
    """A process that reads HLO and keeps what it learns of the grammar in ``cache``."""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        stderr=subprocess.PIPE,
    )


def finish(child: subprocess.Popen[bytes]) -> None:
    _, errors = child.communicate()
    assert (child.returncode, errors) == (0, b"")


def kept(cache: Path) -> list[Path]:
    return sorted(path for path in (cache / "fusionscope").iterdir() if path.is_file())


def test_what_is_kept_is_data_that_only_the_user_writes(tmp_path: Path) -> None:
    finish(start(tmp_path))
    files = kept(tmp_path)
    assert [file.name.partition("-")[0] for file in files] == ["forms", "grammar"]
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        json.loads(file.read_bytes()[32:])
    output = [file.stat().st_ino for file in files]
    finish(start(tmp_path))
    assert [file.stat().st_ino for file in kept(tmp_path)] == output


def test_known_forms_need_no_lark(tmp_path: Path) -> None:
    finish(start(tmp_path))
    finish(start(tmp_path, f"{READ}\nimport sys\nassert 'lark' not in sys.modules"))


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
    """Whole, and with forms and rules that are wrong."""
    tables = re.sub(rb"2?0|HloModule", b"3", file.read_bytes()[32:])
    file.write_bytes(hashlib.sha256(tables).digest() + tables)
    file.chmod(0o666)


def replaced(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [empty, cut, flipped, foreign, written_by_others, replaced])
def test_a_damaged_cache_does_no_harm(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    finish(start(tmp_path))
    forms, grammar = kept(tmp_path)
    whole = [file.stat().st_size for file in (forms, grammar)]
    damage(forms)
    finish(start(tmp_path))
    if damage is not replaced:  # it is written anew
        assert abs(forms.stat().st_size - whole[0]) < whole[0] / 50
        forms.unlink()  # which would do without the other
    damage(grammar)
    finish(start(tmp_path))
    if damage is not replaced:
        assert abs(grammar.stat().st_size - whole[1]) < whole[1] / 50
        finish(start(tmp_path))


def test_no_place_for_a_cache_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    finish(start(file))
    finish(start(file / "below"))


@pytest.mark.slow
def test_many_processes_at_once(tmp_path: Path) -> None:
    for child in [start(tmp_path) for _ in range(8)]:
        finish(child)
    assert len(kept(tmp_path)) == 2


REFUSING = """
import sys
import lark
from fusionscope import UnusableInput
from fusionscope.dump import open_dump
lark.Lark.parse = lambda *_, **__: None
for sample in sys.argv[1:]:
    for module in open_dump(sample).modules:
        for stage in module.stages:
            try:
                module.read(stage)
            except UnusableInput:
                continue
            sys.exit(f"{stage} was read")
"""


@pytest.mark.slow
def test_nothing_is_read_without_the_grammar(tmp_path: Path) -> None:
    dumps = (SAMPLES / name for name in ("cpu/loop", "h100/libraries", "tpu-v5e/attention"))
    command = [sys.executable, "-c", REFUSING, *map(str, dumps)]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run(command, check=True, env=environment, cwd=ROOT)
