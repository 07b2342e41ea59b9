"""Runs every command on damaged and hostile inputs, and holds what it answers against what must
always be true.

Each case is a dump, a text, a plan, expectations, a baseline, a description of a GPU or a study,
damaged in one to three places, and a command that reads it; or a folder that holds several runs, a
dump with files of another one or with stages that are cut, or a user's cache that is not what it
should be. A case is made of the seed and its
number alone, so a run can be continued, and one case be run again, with ``--start``.
``--processes`` runs each command in a process of its own instead of in this one; ``--keep`` keeps
the inputs of cases that fail. Prints each failure and counts by kind; exits with 1 where there is
one.

What must be true: the exit code is 0, 1 or 2; no traceback, no report of a bug in fusionscope; an
answer within the limit of time; few lines of errors, each plain; nothing in the output that is
not printable; JSON, XML and annotations are whole; Markdown holds nothing live; a text that is read
is printed so that it is read as the same again; ``diff`` finds what is another computation; a
stage that cannot be read is reported, as is a folder that holds two runs, or a stage of another
program; nothing is written through links in a cache.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import gzip
import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from conformance.findings import ROOT, Finding, counted, problem
from fusionscope.cli.main import main as fusionscope
from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.hlo import Module, ParseTable, parse, read, to_text

SAMPLES = ROOT / "samples"
RECORDS = ROOT / "tests" / "rules"
LIMIT_CPU_S = 20.0
LARGEST_BYTES = 4 << 30  # of memory
SMALL_BYTES = 9_000  # of texts that are damaged alone
CHUNK = 500  # cases in one process

# Small ones of every kind of record and compiler; of each only the stages that commands read.
DUMPS = (
    "cpu/elementwise", "cpu/concatenate", "cpu/loop", "cpu-multi-output/reductions",
    "cpu-jaxlib-0.10/softmax", "cpu-without-fusion/elementwise", "h100/elementwise", "a100/dense",
    "mi300x/concatenate", "a100-jaxlib-0.4.35/updates", "a100-xla-2023/updates",
    "tpu-v5e/attention", "h100/softmax", "cpu/convolution", "cpu/cartpole", "h100/libraries",
    "cpu-elementwise-library/attention", "h100-jaxlib-0.4.34/updates", "b200/dense",
)  # fmt: skip

PLAN = """module = "jit_program"
disable = ["cpu-code-dup"]
allow = ["add* -> *"]
forbid = ["* -> tanh*", "exponential -> reduce"]
[set]
cpu-concat.max_operands = 12
[[kernel]]
members = ["add*", "multiply*"]
"""
EXPECTATIONS = """[[expect]]
fused = "* -> *"
message = "keep these together"
[[expect]]
kernels = 1
[[expect]]
never_fused = "* -> *"
where = { module = "jit_*" }
[[expect]]
one_kernel = ["*", "add"]
[[expect]]
bytes = "12 kB"
where = { source = "model.py" }
[[expect]]
not_refused = ["unknown", "cpu-concat"]
[[expect]]
not_launched = ["copy", "reduce"]
[[expect]]
library_calls = []
[[expect]]
known_faults = []
"""
HOSTILE = (
    "\x1b[31mred\x1b[0m", "\u202egnp.exe", "\u061c", "\u2028", "\u2029", "\x9b2J", "\r\rover",
    "<script>alert(1)</script>", "<img src=x onerror=a>", "![x](http://a.b/c.png)",
    "[here](javascript:a)", "@octocat", "https://example.org/x", "www.example.org", "a|b`c`",
    "::error file=x::y", "%0A::warning::z", "../../etc/passwd", "/etc/passwd", "C:\\x",
    "\N{PILE OF POO}", "\ud800", "A" * 3000, "{{7*7}}", "]]>", "&amp;", "a\nb", "\t", "",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "1", "2147483648", "9223372036854775807", "18446744073709551616",
    "-9223372036854775809", "9" * 40, "1e999", "nan", "-inf", "0x7f", "1_000", "9" * 5000,
)  # fmt: skip

# ------------------------------------------------------------------------------------- damage

Damage = Callable[[str, Random], str]


def flip(text: str, random: Random) -> str:
    characters = list(text)
    for _ in range(random.choice((1, 1, 3, 30))):
        if characters:
            place = random.randrange(len(characters))
            characters[place] = chr(ord(characters[place]) & 0xFF ^ (1 << random.randrange(8)))
    return "".join(characters)


def delete_lines(text: str, random: Random) -> str:
    lines = text.split("\n")
    start = random.randrange(len(lines))
    del lines[start : start + random.choice((1, 1, 1, 5))]
    return "\n".join(lines)


def repeat_line(text: str, random: Random) -> str:
    lines = text.split("\n")
    lines.insert(random.randrange(len(lines) + 1), random.choice(lines))
    return "\n".join(lines)


def swap_lines(text: str, random: Random) -> str:
    lines = text.split("\n")
    a, b = random.randrange(len(lines)), random.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


def truncate(text: str, random: Random) -> str:
    return text[: random.randrange(len(text) + 1)]


def cut_out(text: str, random: Random) -> str:
    start = random.randrange(len(text) + 1)
    return text[:start] + text[start + random.choice((1, 2, 10, 300)) :]


def _replaced(text: str, random: Random, pattern: str, new: Callable[[str], str]) -> str:
    matches = list(re.finditer(pattern, text))
    if not matches:
        return text
    match = random.choice(matches)
    return text[: match.start()] + new(match[0]) + text[match.end() :]


def other_number(text: str, random: Random) -> str:
    return _replaced(text, random, r"\d+", lambda _: random.choice(NUMBERS))


def near_number(text: str, random: Random) -> str:
    return _replaced(
        text, random, r"\d{1,18}", lambda old: str(int(old) + random.choice((-1, 1, 7)))
    )


def hostile_name(text: str, random: Random) -> str:
    name = random.choice(HOSTILE)
    if random.random() < 0.5:
        return _replaced(text, random, r'"[^"\n]*"', lambda _: f'"{name}"')
    old = re.findall(r"%?[A-Za-z][\w.-]{2,}", text)
    return text.replace(random.choice(old), name) if old else text


def swap_tokens(text: str, random: Random) -> str:
    matches = list(re.finditer(r"[\w.%-]+|[^\w\s]", text))
    if len(matches) < 2:
        return text
    place = random.randrange(len(matches) - 1)
    a, b = matches[place], matches[min(place + random.choice((1, 1, 2, 9)), len(matches) - 1)]
    if a.end() > b.start():
        return text
    return text[: a.start()] + b[0] + text[a.end() : b.start()] + a[0] + text[b.end() :]


def swap_words(text: str, random: Random) -> str:
    """One word takes the place of another: opcodes, types, names, enumerators."""
    words = re.findall(r"[A-Za-z_][\w.-]*", text)
    return _replaced(text, random, r"[A-Za-z_][\w.-]*", lambda _: random.choice(words))


def swap_values(text: str, random: Random) -> str:
    """Two attributes exchange their values."""
    matches = list(re.finditer(r"(?<=[=:] )\S+|(?<==)(\{[^{}]*\}|[^\s,={}]+)", text))
    if len(matches) < 2:
        return text
    a, b = sorted(random.sample(matches, 2), key=lambda match: match.start())
    return text[: a.start()] + b[0] + text[a.end() : b.start()] + a[0] + text[b.end() :]


def nest(text: str, random: Random) -> str:
    return _replaced(text, random, r"[({\[]", lambda old: old * random.choice((2, 50, 20_000)))


def repeat_part(text: str, random: Random) -> str:
    start = random.randrange(len(text) + 1)
    part = text[start : start + random.choice((1, 20, 400))]
    return text[:start] + part * random.choice((2, 3, 100)) + text[start:]


def insert(text: str, random: Random) -> str:
    place = random.randrange(len(text) + 1)
    return text[:place] + random.choice((*HOSTILE, "\0", "\ufeff", "\r\n", "}", '"')) + text[place:]


def split_token(text: str, random: Random) -> str:
    """A space or comment inside a number or word, where a reader could close the gap."""
    gap = random.choice((" ", "\n", "/*c*/", "/*,*/", "//c\n"))

    def split(token: str) -> str:
        place = random.randrange(1, len(token))
        return token[:place] + gap + token[place:]

    return _replaced(text, random, random.choice((r"\d{2,}", r"[\w.-]{2,}")), split)


DAMAGES: tuple[Damage, ...] = (
    flip, delete_lines, repeat_line, swap_lines, truncate, cut_out, other_number, near_number,
    near_number, hostile_name, hostile_name, swap_tokens, swap_words, swap_words, swap_values,
    swap_values, nest, repeat_part, insert, split_token,
)  # fmt: skip


def damage(content: bytes, random: Random) -> bytes:
    """Protos and archives as bytes, the rest as text."""
    is_text = b"\0" not in content[:2000]
    text = content.decode("utf-8" if is_text else "latin-1", "replace")
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        text = random.choice(DAMAGES)(text, random) if is_text else _damaged(text, random)
    return text.encode("utf-8" if is_text else "latin-1", "surrogatepass" if is_text else "replace")


def _damaged(text: str, random: Random) -> str:
    return random.choice((flip, flip, flip, truncate, cut_out, repeat_part))(text, random)


def damage_place(path: Path, random: Random) -> None:
    """Something else lies where a file was."""
    path.unlink()
    match random.randrange(6):
        case 0:
            path.symlink_to("nowhere")
        case 1:
            os.mkfifo(path)
        case 2:
            path.mkdir()
        case 3:
            path.symlink_to(path.name)
        case 4:
            path.symlink_to("/dev/zero")
        case 5:
            pass


# -------------------------------------------------------------------------------------- seeds


@cache
def texts() -> tuple[bytes, ...]:
    contents = {
        content
        for folder in DUMPS
        for file in sorted((SAMPLES / "dumps" / folder).iterdir())
        if ".txt" in file.name
        and (content := _content(file)).startswith(b"HloModule")
        and len(content) < SMALL_BYTES
    }
    bare = {_without_tables(content) for content in contents}
    stages = sorted(contents | bare | {_with_sources(content) for content in bare})
    return (*stages, *examples(), *examples())


@cache
def examples() -> tuple[bytes, ...]:
    """Small modules of every opcode, as the records of rules have them."""
    texts_found = {
        b"HloModule" + part
        for file in sorted(RECORDS.glob("gpu*_records/*.hlo"))
        for part in file.read_bytes().split(b"HloModule")[1:]
        if len(part) < SMALL_BYTES
    }
    return tuple(sorted(texts_found))


_TABLE = re.compile(
    rb"^(FileNames|FunctionNames|FileLocations|StackFrames)\n(.+\n)+\n*", re.MULTILINE
)


def _without_tables(content: bytes) -> bytes:
    """Without the lines on files and functions, so that damage is done to instructions."""
    return re.sub(rb" ?stack_frame_id=\d+", b"", _TABLE.sub(b"", content))


def _with_sources(content: bytes) -> bytes:
    """As older compilers said where an instruction is from."""
    source = rb'metadata={source_file="/home/user/model.py" source_line=7 '
    return content.replace(b"metadata={", source)


def _content(file: Path) -> bytes:
    content = file.read_bytes()
    return gzip.decompress(content) if file.suffix == ".gz" else content


@cache
def dump_files(folder: str) -> dict[str, bytes]:
    """Of a dump, by name: its side files, and of its stages those around fusion passes."""
    directory = SAMPLES / "dumps" / folder
    (module, *_) = open_dump(directory).modules
    stages = module.stages
    numbers = {0, len(stages) - 1, stages.index(module.final) if module.final else 0}
    for stage in module.fusion_stages[:4]:
        numbers |= {stages.index(stage) - 1, stages.index(stage)}
    dropped = {
        file.path.name
        for number, stage in enumerate(stages)
        for file in (stage.text, stage.proto)
        if file is not None and number not in numbers
    }
    return {
        file.name.removesuffix(".gz"): _content(file)
        for file in sorted(directory.iterdir())
        if file.is_file() and file.name not in dropped
    }


@cache
def baseline(folder: str) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        put(Path(scratch) / "dump", dump_files(folder))
        file = f"{scratch}/baseline.json"
        run_here(["check", f"{scratch}/dump", "--baseline", file, "--update"], Path(scratch))
        return Path(file).read_bytes()


def put(directory: Path, files: dict[str, bytes]) -> None:
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)


# -------------------------------------------------------------------------------------- cases


@dataclass
class Case:
    """``arguments`` of the command that runs in ``place``; ``text`` is the original and the damaged
    text where only these two matter, ``damaged`` the files of the dump that were damaged."""

    place: Path
    arguments: list[str] = field(default_factory=list)
    texts: tuple[bytes, bytes] | None = None
    damaged: tuple[Path, ...] = ()
    told: tuple[str, ...] = ()  # words that the answer has, if there is one
    cache: Path | None = None  # of this case alone


def make_case(seed: int, number: int, place: Path, only: frozenset[str] = frozenset()) -> Case:
    random = Random(f"{seed} {number}")
    case = Case(place)
    cases = [(make, weight) for make, weight in CASES if not only or make.__name__ in only]
    makers, weights = zip(*cases, strict=True)
    (make,) = random.choices(makers, weights)
    make(case, random)
    return case


def damaged_text(case: Case, random: Random) -> Path:
    original = random.choice(texts())
    case.texts = original, damage(original, random)
    (case.place / "original.hlo").write_bytes(original)
    damaged = case.place / random.choice(("damaged.hlo", "module_0001.f.before_optimizations.txt"))
    damaged.write_bytes(case.texts[1])
    return damaged


def damaged_dump(case: Case, random: Random) -> Path:
    directory = case.place / "dump"
    put(directory, dump_files(random.choice(DUMPS)))
    if random.random() < 0.4:
        hostile_everywhere(directory, random)
    files = random.sample(sorted(directory.iterdir()), random.choice((0, 1, 1, 2, 3)))
    for file in files:
        if random.random() < 0.06:
            damage_place(file, random)
        elif random.random() < 0.05:
            packed = damage(gzip.compress(file.read_bytes()), random)
            file.unlink()
            file.with_name(f"{file.name}.gz").write_bytes(packed)
        elif random.random() < 0.05:
            name = (
                damage(os.fsencode(file.name), random).replace(b"/", b"").replace(b"\0", b"")[:250]
            )
            file.rename(os.fsdecode(os.fsencode(directory) + b"/" + (name.strip(b".") or b"x")))
        else:
            file.write_bytes(damage(file.read_bytes(), random))
    case.damaged = tuple(files)
    return directory


def hostile_everywhere(directory: Path, random: Random) -> None:
    """One text, or the name of the module, is another one in all files."""
    name = random.choice(HOSTILE).encode("utf-8", "surrogatepass")
    files = [file for file in sorted(directory.iterdir()) if file.is_file()]
    matches = re.findall(
        rb'(?:op_name|source_file)="([^"\n]+)"|^\d+ "([^"\n]+)"',
        b"\n".join(file.read_bytes() for file in files if ".txt" in file.name),
        re.MULTILINE,
    )
    words = sorted({word or quoted_word for word, quoted_word in matches})
    if words and random.random() < 0.8:
        old = random.choice(words)
        places = ((b'"' + old + b'"', b'"' + name + b'"'),)
    else:
        places = ((b"HloModule jit_program", b"HloModule " + name),)
        for file in files:
            new = file.name.replace("jit_program", os.fsdecode(name.replace(b"/", b"_"))[:100])
            with contextlib.suppress(OSError, ValueError):
                file.rename(file.with_name(new))
        files = [file for file in sorted(directory.iterdir()) if file.is_file()]
    for file in files:
        content = file.read_bytes()
        for old, new_bytes in places:
            content = content.replace(old, new_bytes)
        file.write_bytes(content)


def whole_dump(case: Case, random: Random, *folders: str) -> tuple[str, Path]:
    folder = random.choice(folders or DUMPS)
    put(case.place / "dump", dump_files(folder))
    return folder, case.place / "dump"


def format_of(random: Random, *formats: str) -> list[str]:
    return ["--format", random.choice(formats)]


def case_parse(case: Case, random: Random) -> None:
    file = damaged_text(case, random)
    more = random.choice(([], ["--print"], ["--print"], ["--format", "json"]))
    case.arguments = ["parse", file.name, *more]


def case_diff(case: Case, random: Random) -> None:
    file = damaged_text(case, random)
    case.arguments = ["diff", "original.hlo", file.name, "--exit-code"]


def case_text(case: Case, random: Random) -> None:
    file = damaged_text(case, random)
    command = random.choice(("explain", "history", "verify", "check"))
    case.arguments = [command, file.name]
    if command == "check":
        (case.place / "expect.toml").write_text(EXPECTATIONS)
        case.arguments += ["--expect", "expect.toml", *format_of(random, *CHECK_FORMATS)]


FORMATS = ("text", "json", "markdown")
CHECK_FORMATS = (*FORMATS, "junit", "sarif", "github")


def case_explain(case: Case, random: Random) -> None:
    damaged_dump(case, random)
    more = random.choice(
        (
            [], [], ["--show", "movements"], ["--where", "op=fusion"], ["--top", "99"],
            ["--by", "scope"], ["--by", "stack"], ["--kernel", "*"], ["--where", "op-name=*a*"],
        )
    )  # fmt: skip
    case.arguments = ["explain", "dump", *more, *format_of(random, *FORMATS)]


def case_history(case: Case, random: Random) -> None:
    damaged_dump(case, random)
    name = random.choice(([], [], ["fusion"], ["add.1"]))
    case.arguments = ["history", "dump", *name, *format_of(random, *FORMATS)]


def case_verify(case: Case, random: Random) -> None:
    damaged_dump(case, random)
    case.arguments = ["verify", "dump", *format_of(random, *FORMATS)]


def case_replayed(case: Case, random: Random) -> None:
    """A damaged text stands before and after the fusion pass that is replayed."""
    original = random.choice(examples())
    before = damage(original, random)
    after = before if random.random() < 0.7 else original
    device = dump_files("h100/elementwise")["module_0001.jit_program.gpu_target_config.pbtxt"]
    files = {
        "0000.fusion.after_pipeline-start.before_priority-fusion.txt": before,
        "0001.fusion.after_priority-fusion.before_pipeline-end.txt": after,
        "sm_9.0a_gpu_after_optimizations.txt": after,
        "gpu_target_config.pbtxt": device,
    }
    if random.random() < 0.3:
        files = {
            "0000.simplification.after_pipeline-start.before_fusion.txt": before,
            "0001.simplification.after_fusion.before_pipeline-end.txt": after,
            "cpu_after_optimizations.txt": after,
        }
    put(case.place / "dump", {f"module_0000.f.{name}": text for name, text in files.items()})
    command = random.choice(
        (
            ["explain", "dump"], ["verify", "dump"],
            ["what-if", "dump", "--disable", "fusion-wrapper"],
            ["explain", "dump", "--boundaries"], ["history", "dump"],
        )
    )  # fmt: skip
    case.arguments = [*command, *format_of(random, *FORMATS)]


def case_diff_dumps(case: Case, random: Random) -> None:
    damaged_dump(case, random)
    put(case.place / "other", dump_files(random.choice(DUMPS)))
    pair = random.choice((["dump", "other"], ["other", "dump"], ["dump@pre-fusion", "dump@final"]))
    case.arguments = ["diff", *pair, *format_of(random, *FORMATS)]


def case_check(case: Case, random: Random) -> None:
    damaged_dump(case, random)
    (case.place / "expect.toml").write_text(EXPECTATIONS)
    case.arguments = ["check", "dump", "--expect", "expect.toml"]
    case.arguments += format_of(random, *CHECK_FORMATS)


def side_file(case: Case, random: Random, name: str, content: bytes) -> str:
    file = case.place / name
    file.write_bytes(damage(content, random))
    if random.random() < 0.03:
        damage_place(file, random)
    return name


def case_expectations(case: Case, random: Random) -> None:
    whole_dump(case, random, "cpu/elementwise", "cpu/concatenate")
    name = side_file(case, random, "expect.toml", EXPECTATIONS.encode())
    case.arguments = ["check", "dump", "--expect", name, *format_of(random, *CHECK_FORMATS)]


def case_baseline(case: Case, random: Random) -> None:
    folder, _ = whole_dump(case, random, "cpu/elementwise", "cpu/loop", "h100/elementwise")
    name = side_file(case, random, "baseline.json", baseline(folder))
    case.arguments = ["check", "dump", "--baseline", name, *format_of(random, *CHECK_FORMATS)]


def case_plan(case: Case, random: Random) -> None:
    whole_dump(case, random, "cpu/elementwise", "cpu/concatenate")
    name = side_file(case, random, "plan.toml", PLAN.encode())
    command = random.choice((["explain", "dump"], ["rerun", "dump", *NO_PYTHON]))
    case.arguments = [*command, "--plan", name]


NO_PYTHON = ["--python", "/bin/true", "--limit", "5"]


def case_device(case: Case, random: Random) -> None:
    whole_dump(case, random, "h100/elementwise", "a100/dense")
    content = dump_files("h100/elementwise")["module_0001.jit_program.gpu_target_config.pbtxt"]
    name = side_file(case, random, "device.pbtxt", content)
    command = random.choice((["explain", "dump"], ["verify", "dump"]))
    case.arguments = [*command, "--device", name]


def case_study(case: Case, random: Random) -> None:
    (case.place / "study").mkdir()
    content = (SAMPLES / "cartpole" / "study.toml").read_bytes()
    (case.place / "study" / "study.toml").write_bytes(damage(content, random))
    case.arguments = ["study", "study", "--device", "cpu", "--size", "64", *NO_PYTHON]


def case_capture(case: Case, random: Random) -> None:
    file = damaged_text(case, random)
    case.texts = None
    case.arguments = ["capture", file.name, *NO_PYTHON]


def case_rerun(case: Case, random: Random) -> None:
    damaged_dump(case, random)
    if random.random() < 0.3:
        case.arguments = ["tune", "dump", "--python", "/bin/true", "--budget", "2"]
    else:
        change = random.choice((["--rest", "xla"], ["--rest", "off"], ["--disable", "fusion"]))
        case.arguments = ["rerun", "dump", *change, *NO_PYTHON]


def case_options(case: Case, random: Random) -> None:
    """Words of the command line itself."""
    whole_dump(case, random, "cpu/elementwise")
    words = damage(b"add.1 -> tanh*", random).replace(b"\0", b"").decode("utf-8", "replace")[:5000]
    case.arguments = random.choice(
        (
            ["rules", words], ["what-if", "dump", "--allow", words], ["history", "dump", words],
            ["what-if", "dump", "--set", words], ["explain", words],
            ["diff", f"dump@{words}", "dump"], ["history", f"dump@{words}"],
            ["explain", "dump", "--module", words], ["explain", "dump", "--reason", words],
            ["explain", "dump", "--source", words], ["explain", "dump", "--where", f"op={words}"],
            ["explain", "dump", "--device", words], ["explain", "dump", "--rules", words],
            ["explain", "dump", "--output", f"out/{words}"], ["capture", words, *NO_PYTHON],
            ["capture", "dump", "--arg", words, *NO_PYTHON],
            ["check", "dump", "--tolerance", words],
        )
    )  # fmt: skip
    if "--" not in words:
        case.arguments = [
            argument if argument != words else words or "x" for argument in case.arguments
        ]


def run_files(folder: str) -> dict[str, bytes]:
    """The files of a dump as those of module 1, in the order in which a run writes them."""
    files = dump_files(folder)
    names = sorted(files, key=lambda name: (".before_optimizations." not in name, name))
    return {name.replace("module_0000", "module_0001"): files[name] for name in names}


READERS = (
    ["explain", "dump"], ["explain", "dump", "--no-try"], ["verify", "dump"], ["history", "dump"],
    ["check", "dump", "--expect", "expect.toml"], ["diff", "dump", "other"],
    ["diff", "other", "dump"], ["report", "dump"], ["survey", "dump", "-o", "tables"],
    ["rerun", "dump", "--rest", "xla", *NO_PYTHON],
)  # fmt: skip


def read_by(case: Case, random: Random, folder: str) -> None:
    """A command that reads the folder ``dump``; ``other`` is a whole dump."""
    case.arguments = list(random.choice(READERS))
    if "other" in case.arguments:
        put(case.place / "other", dump_files(folder))
    (case.place / "expect.toml").write_text(EXPECTATIONS)


_STEP = re.compile(r"(module_0001\.[^.]+)\.(\d{4})\.(.+)\.txt$")


def case_runs(case: Case, random: Random) -> None:
    """Two or three runs in one folder: over each other, with timestamps, with timestamps in some
    names, or with files that were copied without their times."""
    folders = random.choices(DUMPS, k=random.choice((2, 2, 3)))
    directory = case.place / "dump"
    directory.mkdir()
    stamps, share = random.random() < 0.4, random.choice((1.0, 1.0, 0.9, 0.3))
    steps: dict[tuple[str, str], set[str]] = {}
    for number, folder in enumerate(folders):
        for place, (name, content) in enumerate(run_files(folder).items()):
            if stamps and random.random() < share:
                name = f"{1764267890123456 + number * 60_000_000}.{name}"
            file = directory / name
            file.write_bytes(content)
            if share == 1.0:
                os.utime(file, ns=(10**18, 10**18 + (number * 60_000 + place) * 1_000_000))
            if step := _STEP.match(name):
                steps.setdefault((step[1], step[2]), set()).add(step[3])
    if any(len(labels) > 1 for labels in steps.values()):
        case.told = ("two runs",)
    if random.random() < 0.2:
        for file in random.sample(sorted(directory.iterdir()), 2):
            file.write_bytes(damage(file.read_bytes(), random))
    read_by(case, random, folders[0])


def case_swapped(case: Case, random: Random) -> None:
    """Files of one dump have the contents of files of the same kind of another."""
    folder, foreign_folder = random.sample(DUMPS, 2)
    files, foreign = run_files(folder), run_files(foreign_folder)
    for name in random.sample(sorted(files), random.choice((1, 1, 2, 4))):
        kind = _kind(name)
        same = [foreign_file for foreign_file in foreign if _kind(foreign_file) == kind]
        if random.random() < 0.15:
            same = sorted(foreign)
        if same:
            files[name] = foreign[random.choice(same)]
    if random.random() < 0.3:  # beside the other files
        name = random.choice(sorted(foreign))
        files.setdefault(name, foreign[name])
    put(case.place / "dump", files)
    read_by(case, random, foreign_folder)


def _kind(name: str) -> str:
    return "stage" if _STEP.match(name) else name.rpartition("-")[2].rpartition(".module_")[2][-20:]


def case_cut(case: Case, random: Random) -> None:
    """Stages end at a computation, at a line, or anywhere."""
    folder = random.choice(DUMPS)
    files = run_files(folder)
    stages = sorted(name for name in files if files[name].startswith(b"HloModule"))
    for name in random.sample(stages, min(len(stages), random.choice((1, 1, 2)))):
        text = files[name]
        ends = random.choice((rb"\nENTRY", rb"\n\n", rb"\n", rb"[ ,(]", rb"\n(?=%\S+ \()"))
        places = [end.start() for end in re.finditer(ends, text)]
        files[name] = text[: random.choice(places)] if places else b""
    put(case.place / "dump", files)
    case.damaged = tuple(case.place / "dump" / name for name in stages)
    read_by(case, random, folder)


def case_cache(case: Case, random: Random) -> None:
    """A cache in which something else is where entries were, or that others may change."""
    whole_dump(case, random, "cpu/elementwise", "cpu/concatenate", "h100/softmax")
    (case.place / "victim").write_bytes(VICTIM)
    case.cache = case.place / "cache"
    case.arguments = random.choice(
        (["explain", "dump", "--no-try"], ["history", "dump"], ["cache"], ["cache", "--clear"])
    )
    run_apart(["explain", "dump", "--no-try"], case.place, 60.0, case.cache)
    root = case.cache / "fusionscope"
    for file in [path for path in sorted(root.rglob("*")) if path.is_file()]:
        if random.random() < 0.7:
            spoil_entry(file, case.place / "victim", random)
    spoil_directory(random.choice((root, root, root / "results", case.cache)), random)


VICTIM = b"precious"


def spoil_entry(file: Path, victim: Path, random: Random) -> None:
    match random.randrange(6):
        case 0:
            file.unlink()
            file.symlink_to(victim)
        case 1:
            file.chmod(random.choice((0o666, 0o000, 0o444)))
        case 2:
            os.link(victim, file.with_name("linked"))
        case 3:
            file.write_bytes(damage(file.read_bytes(), random))
        case _:
            damage_place(file, random)


def spoil_directory(directory: Path, random: Random) -> None:
    match random.randrange(7):
        case 0:
            directory.chmod(random.choice((0o777, 0o770, 0o1777, 0o500)))
        case 1:
            directory.rename(directory.with_name("moved"))
            directory.symlink_to("moved")
        case 2:
            shutil.rmtree(directory)
            directory.write_text("")
        case 3:
            shutil.rmtree(directory)
            os.mkfifo(directory)
        case 4:
            if os.geteuid() == 0:
                os.chown(directory, 65534, -1)
        case _:
            pass


CASES: tuple[tuple[Callable[[Case, Random], None], float], ...] = (
    (case_parse, 30), (case_diff, 20), (case_text, 10), (case_explain, 8), (case_history, 6),
    (case_verify, 6), (case_diff_dumps, 4), (case_check, 4), (case_expectations, 3),
    (case_baseline, 3), (case_plan, 3), (case_device, 2), (case_study, 1), (case_capture, 1),
    (case_rerun, 2), (case_options, 3), (case_replayed, 25),
    (case_runs, 5), (case_swapped, 5), (case_cut, 4), (case_cache, 1),
)  # fmt: skip

# ------------------------------------------------------------------------------------ running


class Hang(BaseException):
    """Raised by an alarm."""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    errors: str
    hung: str = ""


def _alarm(_number: int, frame: FrameType | None) -> None:
    raise Hang("".join(traceback.format_stack(frame, 4)))


def run_here(arguments: list[str], place: Path, limit_s: float = 60.0) -> Answer:
    """The console script in this process."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    surroundings = sys.argv, sys.stdout, sys.stderr, Path.cwd()
    code, hung = 0, ""
    try:
        os.chdir(place)
        sys.argv = ["fusionscope", *arguments]
        sys.stdout, sys.stderr = streams
        for number in (signal.SIGALRM, signal.SIGVTALRM):
            signal.signal(number, _alarm)
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_CPU_S)
        faulthandler.dump_traceback_later(2 * limit_s, exit=True, file=sys.__stderr__)
        try:
            fusionscope()
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else 99
        except Hang as alarm:
            hung = str(alarm)
        except BaseException:
            code = 98
            sys.stderr.write(traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        faulthandler.cancel_dump_traceback_later()
        sys.argv, sys.stdout, sys.stderr, before = surroundings
        os.chdir(before)
        gc.enable()
    for stream in streams:
        with contextlib.suppress(ValueError):
            stream.flush()
    out, errors = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in streams)
    return Answer(code, out, errors, hung)


def run_apart(
    arguments: list[str], place: Path, limit_s: float, cache: Path | None = None
) -> Answer:
    """In a process of its own, by default with the cache of this one."""
    command = [sys.executable, "-m", "fusionscope", *arguments]
    environment = os.environ | ({"XDG_CACHE_HOME": str(cache)} if cache is not None else {})
    try:
        process = subprocess.run(
            command,
            cwd=place,
            capture_output=True,
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return Answer(0, "", "", f"{limit_s} s")
    except ValueError:  # a word of the command line that no process can be given
        return Answer(2, "", "")
    return Answer(
        process.returncode,
        process.stdout.decode("utf-8", "replace"),
        process.stderr.decode("utf-8", "replace"),
    )


# ------------------------------------------------------------------------------------ judging

# Whole lines of HTML that `check` writes itself, without a word from a dump.
_OWN_LINES = re.compile(
    r"^(<!-- fusionscope check -->|<details><summary>[\w' ]+</summary>|</details>)$", re.MULTILINE
)
_SPAN = re.compile(r"`[^`\n]*`")
_LIVE = re.compile(
    r"(?<!\\)\]\(|<(?!br>)[A-Za-z/!]|(?<![\w&;])@\w|\bhttps?://|\bwww\.", re.IGNORECASE
)


def faults(case: Case, answer: Answer) -> Iterator[tuple[str, str]]:
    """What is not so: its kind, and more about it."""
    if answer.hung:
        yield "hang", answer.hung
        return
    if "Traceback (most" in answer.errors:
        yield "traceback", answer.errors.strip().splitlines()[-1]
    elif "bug in fusionscope" in answer.errors:
        yield "own mistake", answer.errors
    if answer.code not in (0, 1, 2):
        yield "exit code", f"{answer.code} {answer.errors[-300:]}"
    if "not enough memory" in answer.errors:
        yield "memory", answer.errors
    lines = answer.errors.splitlines()
    if len(lines) > 12 or any(len(line) > _longest(line) for line in lines):
        yield "long errors", f"{len(lines)} lines, {max(map(len, lines))} characters"
    if answer.code == 2 and not lines:
        yield "no word", repr(case.arguments)
    for name, stream in (("out", answer.out), ("errors", answer.errors)):
        is_print = "--print" in case.arguments  # a module is written as it was read
        odd = [
            character for character in stream if not character.isprintable() and character != "\n"
        ]
        if odd and not is_print:
            yield f"control characters in {name}", repr(odd[:5])
    if answer.code != 2:
        with contextlib.suppress(IndexError):
            yield from _badly_formed(case.arguments, answer.out)
    if case.texts is not None:
        yield from _silent_changes(case, answer)
    yield from _unnamed(case, answer)
    yield from _untold(case, answer)
    words_said = " ".join((answer.out + answer.errors).split())
    for words in case.told if answer.code != 2 and "survey" not in case.arguments else ():
        if words not in words_said:
            yield "two runs untold", repr(case.arguments)
    if case.cache is not None and (case.place / "victim").read_bytes() != VICTIM:
        yield "written through a link", repr(case.arguments)


def _longest(line: str) -> int:
    """Characters that a line of errors may have; those of click repeat a word as it was given."""
    return 2_000 if line.startswith("fusionscope: ") else 5_500


def _badly_formed(arguments: list[str], out: str) -> Iterator[tuple[str, str]]:
    format_name = arguments[arguments.index("--format") + 1] if "--format" in arguments else "text"
    if format_name in ("json", "sarif"):
        try:
            content = json.loads(out, parse_constant=_no_constant)
        except ValueError as error:
            yield "bad JSON", str(error)
            return
        if format_name == "sarif":
            for uri in _places(content):
                if _is_outside(uri) or ":" in uri:
                    yield "path outside", uri
    elif format_name == "junit":
        try:
            ElementTree.fromstring(out)
        except ElementTree.ParseError as error:
            yield "bad XML", str(error)
    elif format_name == "github":
        for line in out.splitlines():
            if not re.match(r"::(error|notice|warning) ", line):
                yield "bad annotation", line
            for path in re.findall(r"file=([^,:]*)", line.partition("::")[2].partition("::")[0]):
                if _is_outside(path):
                    yield "path outside", unquote(path)
    elif format_name == "markdown":
        bare = _SPAN.sub("", _OWN_LINES.sub("", out))
        if (live := _LIVE.search(bare)) is not None:
            yield "live Markdown", bare[max(0, live.start() - 60) : live.end() + 60]


def _places(sarif: Any) -> Iterator[str]:
    for result in sarif["runs"][0]["results"]:
        for place in result.get("locations", ()):
            yield place["physicalLocation"]["artifactLocation"]["uri"]


def _is_outside(path: str) -> bool:
    """Whether a quoted path leaves the directory that it starts from."""
    path_named = unquote(path)
    return path_named.startswith(("/", "\\")) or ".." in path_named.split("/")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _silent_changes(case: Case, answer: Answer) -> Iterator[tuple[str, str]]:
    assert case.texts is not None
    # Only ``parse`` refuses operations of newer compilers.
    reader = parse if case.arguments[0] == "parse" else _read_dumped
    module = _module(case.texts[1], reader)
    if module is None:
        if answer.code == 0 and not answer.errors.strip():
            yield "unreadable and silent", repr(case.arguments)
        return
    if case.arguments[0] == "parse":
        if answer.code != 0:
            yield "refused by the command alone", answer.errors
        again = _module(to_text(module).encode("utf-8", "replace"), reader)
        if again is None or to_text(again) != to_text(module):
            yield "printed otherwise", ""
    elif case.arguments[0] == "diff" and answer.code == 0 and not answer.errors:
        before, after = (
            _meaning(content) for content in (_module(case.texts[0]), module) if content
        )
        if before != after:
            changed = list((before - after) + (after - before))
            yield "silent change", "\n    ".join(map(str, changed[:4]))


def _read_dumped(text: str) -> Module:
    """A stage of a dump, which may hold operations of newer compilers."""
    module = read(text, ParseTable())
    module.check()
    return module


def _module(content: bytes, reader: Callable[[str], Module] = _read_dumped) -> Module | None:
    try:
        module = reader(content.decode("utf-8", "replace").removeprefix("\ufeff"))
        to_text(module)
    except (UnusableInput, RecursionError):
        return None
    return module


# What says nothing about what is computed.
_SAYS_NOTHING = frozenset({"metadata", "origin", "frontend_attributes"})


def _meaning(module: Module) -> Counter[str]:
    """Each instruction with what it reads, without any name: where two of these differ, something
    else is computed, unless nothing reads it."""
    meaning: Counter[str] = Counter()
    for computation in module.computations:
        for instruction in computation.instructions:
            attributes = sorted(
                f"{key}={re.sub(r'%[^ ,}]+', '%', str(value))}"
                for key, value in instruction.attributes.items()
                if key not in _SAYS_NOTHING and not instruction.called
            )
            operands = [f"{operand.opcode} {operand.shape}" for operand in instruction.operands]
            root = "ROOT " if instruction is computation.root else ""
            literal = "".join((instruction.literal or "").split())
            meaning[
                f"{root}{instruction.shape} {instruction.opcode} {operands} {attributes} {literal}"
            ] += 1
    return meaning


def open_modules(case: Case) -> tuple[object, ...]:
    return open_dump(case.place / "dump").modules if case.damaged else ()


def _unnamed(case: Case, answer: Answer) -> Iterator[tuple[str, str]]:
    """No file that was damaged is named in one line, where this is all that can be wrong."""
    command, _, option, *_ = (*case.arguments, "", "")
    is_asked = command in ("explain", "verify") or (command == "history" and option == "--format")
    if answer.code != 2 or not case.damaged or not is_asked:
        return
    names = [_plain(path.name) for path in (case.place / "dump", *case.damaged)]
    if answer.errors.count("\n") != 1 or not any(name in _plain(answer.errors) for name in names):
        yield "damage untold", answer.errors


def _untold(case: Case, answer: Answer) -> Iterator[tuple[str, str]]:
    """``history`` and ``verify`` read every stage."""
    if case.arguments[0] != "history" or answer.code == 2 or len(open_modules(case)) > 1:
        return  # of several modules it reads the costliest
    words_said = _plain(answer.out + answer.errors)
    for file in case.damaged:
        if not re.search(r"\.\d{4}\..*after_.*\.txt$", file.name) or not file.is_file():
            continue
        if _module(file.read_bytes()) is None and _plain(file.name) not in words_said:
            yield "unreadable stage untold", file.name


def _plain(text: str) -> str:
    """Without what is wrapped or replaced on a screen, or put in by Markdown."""
    return re.sub(r"[^!-~]|\\", "", text)


# ---------------------------------------------------------------------------------------- main


def work(options: Namespace) -> None:
    """One chunk of cases; tells each as a line of JSON."""
    run = run_apart if options.processes else run_here
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST_BYTES, LARGEST_BYTES))
    for number in range(options.start, options.start + options.count):
        place = Path(tempfile.mkdtemp(prefix=f"fuzz-{number}-"))
        try:
            case = make_case(options.seed, number, place, frozenset(options.only))
            began = time.process_time()
            if case.cache is not None:
                answer = run_apart(case.arguments, place, options.limit, case.cache)
            else:
                answer = run(case.arguments, place, options.limit)
            took = time.process_time() - began
            faults_of_case = list(faults(case, answer))
            if faults_of_case and options.keep:
                copy_of_case = Path(options.keep) / str(number)
                shutil.rmtree(copy_of_case, ignore_errors=True)
                shutil.copytree(place, copy_of_case, symlinks=True, copy_function=_copy)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        report_of_case = {
            "number": number,
            "faults": faults_of_case,
            "arguments": case.arguments,
            "took": took,
        }
        print(
            json.dumps(report_of_case | {"code": answer.code, "silent": not answer.errors}),
            flush=True,
        )
        if number % 50 == 0:
            gc.collect()


def _copy(source: str, target: str) -> str:
    return shutil.copy2(source, target) if Path(source).is_file() else target


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one case")
    parser.add_argument("--processes", action="store_true", help="a process for each command")
    parser.add_argument("--keep", metavar="DIR", help="keep the inputs of cases that fail")
    parser.add_argument(
        "--only", metavar="CASE", action="append", default=[], help="cases of this kind: case_runs"
    )
    parser.add_argument("--worker", action="store_true", help=SUPPRESS)


def findings(options: Namespace) -> Iterator[Finding]:
    if options.worker:
        work(options)
        sys.exit(0)
    number, end = options.start, options.start + options.count
    with tempfile.TemporaryDirectory(prefix="fuzz-cache-") as cache:  # not the user's own
        while number < end:
            count = min(CHUNK, end - number)
            environment = os.environ | {"XDG_CACHE_HOME": cache}
            for last, finding in _chunk(options, number, count, environment):
                number = last + 1
                yield finding


def _chunk(
    options: Namespace, start: int, count: int, environment: dict[str, str]
) -> Iterator[tuple[int, Finding]]:
    """The cases of one worker, up to one of which it died, each with its number."""
    command = [sys.executable, "-m", "conformance", "fuzz", "--worker"]
    for name, value in (("start", start), ("count", count), ("seed", options.seed)):
        command += [f"--{name}", str(value)]
    command += ["--limit", str(options.limit), *(["--processes"] if options.processes else [])]
    command += [word for name in options.only for word in ("--only", name)]
    command += ["--keep", str(Path(options.keep).resolve())] if options.keep else []
    last = start - 1
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as worker:
        assert worker.stdout is not None
        for line in worker.stdout:
            report_of_case = json.loads(line)
            last = report_of_case["number"]
            yield last, counted(f"exit code {report_of_case['code']}")
            for kind, more in report_of_case["faults"]:
                words = " ".join(report_of_case["arguments"])[:200]
                yield last, problem(kind, f"{last}: {kind}: {words!a}\n    {more[:600]!a}")
    if worker.returncode:
        yield last + 1, problem("died", f"{last + 1}: died of {worker.returncode}")
