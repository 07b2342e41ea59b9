"""Keeps what the real compiler does with the modules that tests compare the replay with.

Needs a Python with jax and its plugin for CUDA; no GPU. Four kinds:

- ``gpu``: the steps of priority fusion, a line each, for the modules of
  ``tests/rules/gpu_records/NAME.hlo``, in ``NAME.TARGET.txt``. A first line
  ``// targets: h100 b200`` says for which devices of ``samples/devices``, ``// flags: --xla_...``
  with which flags, ``// version: 0.11`` by another jaxlib than 0.12. So are the examples of the
  rules, for an H100.
- ``passes``: what a pass around priority fusion makes of the modules of
  ``tests/rules/gpu_pass_records/PASS.VERSION.hlo`` for an H100, in pairs in the same file.
  ``--add`` adds the modules of files that begin with the name of their pass and a dot.
- ``tiles``: the tiles that the compiler logs of each instruction of the kernels for Triton in
  ``tests/rules/tile_records``, with the tiles that these were given.
- ``users``: the orders of users behind passes, for ``tests/replay/users/NAME.hlo``. A first line
  ``// passes: a b`` says what runs before priority fusion, which scores each producer with its
  users in their order. Where a second line ``// layouts: as written`` stands, the module is put in
  before layouts are assigned; else it goes through StableHLO. ``users/NAME`` holds the stages that
  differ from those before them, with their ids, and in ``users.txt`` the orders.

With ``--check`` the files are compared with what the compiler records instead of written.
"""

from __future__ import annotations

import re
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from conformance import compiling
from conformance.examples import read_card, replay_pass
from conformance.findings import ROOT, Finding, counted, note, problem
from fusionscope.dump.priority_fusion import (
    Fused,
    Ineligible,
    Priority,
    PriorityStep,
    read_priority_fusion,
)
from fusionscope.gpu.model import GpuModel
from fusionscope.gpu.tiling.search import BlockLevelConfig, block_level_config
from fusionscope.graph.comparison import find_divergence
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module, parse
from fusionscope.passes.gpu.priority_fusion.record import recorded_users
from fusionscope.passes.gpu.priority_fusion.rules import GPU_FUSION
from fusionscope.passes.rule import RuleBook
from fusionscope.rules.pages import read_examples
from fusionscope.versions.known import load_compiler

STEPS = ROOT / "tests" / "rules" / "gpu_records"
PASSES = ROOT / "tests" / "rules" / "gpu_pass_records"
TILES = ROOT / "tests" / "rules" / "tile_records"
USERS = ROOT / "tests" / "replay" / "users"
_HEADING = re.compile(r"^// (\w+): (.+)$", re.MULTILINE)
_MODULE = re.compile(r"^(?=HloModule ([\w.\-]+))", re.MULTILINE)


def modules_of(text: str) -> dict[str, str]:
    """The modules of a file, by name."""
    _, *parts = _MODULE.split(text)
    names, texts = parts[::2], parts[1::2]
    assert len({*names}) == len(names), "two modules have the same name"
    return dict(zip(names, texts, strict=True))


def sections_of(file: Path) -> dict[str, list[str]]:
    """The lines that were recorded of each module."""
    parts = file.read_text(encoding="utf-8").split("# ")[1:]
    return {name: lines for name, *lines in (part.strip().splitlines() for part in parts)}


def keep(file: Path, text: str, words: str, *, is_checked: bool) -> Finding:
    is_same = file.is_file() and file.read_text(encoding="utf-8") == text
    if not is_checked:
        file.write_text(text, encoding="utf-8")
    line = f"{file.name}: {words}"
    if is_checked and not is_same:
        return problem("files that differ", f"{line}, another")
    return counted("files alike" if is_same else "files written", line)


# The steps of priority fusion.

EXAMPLES = "examples"
# What the replay does otherwise than the compiler, by the file.
DIFFERENT = {
    "complex_logarithms": "the table of cycles has none of them, as passes before write them anew",
    "scales": "Triton moves elements of f8e8m0fnu since 0.12",
    "infinite_times": "a priority that was infinite becomes none, when it should stay what it is",
}
_NEWEST = "0.12"
_MORE_TRIES = 3  # jaxlib 0.11 crashes at times, where it scores several producers at once


@dataclass(frozen=True, slots=True)
class Programs:
    """The modules of one file, by name."""

    name: str
    targets: tuple[str, ...]
    flags: str
    version: str
    texts: dict[str, str]

    def record(self, target: str) -> Path:
        return STEPS / f"{self.name}.{target}.txt"


def all_programs() -> Iterator[Programs]:
    """Those of the files, and the examples of the rules as one more."""
    for file in sorted(STEPS.glob("*.hlo")):
        text = file.read_text(encoding="utf-8")
        options = dict(_HEADING.findall(text))
        targets = tuple(options["targets"].split())
        flags, version = options.get("flags", ""), options.get("version", _NEWEST)
        yield Programs(file.stem, targets, flags, version, modules_of(text))
    examples = {
        f"{rule.id}{suffix}.{index}": example.text
        for rule in GPU_FUSION
        for suffix, section in (("", ""), ("-gpu", "on GPUs"))
        for index, example in enumerate(read_examples(rule.id, section))
    }
    yield Programs(EXAMPLES, ("h100",), "", _NEWEST, examples)


def written(step: PriorityStep) -> str:
    if isinstance(step, Fused):
        return f"fused {step.fusion}: {step.producer} -> {step.consumer}"
    if isinstance(step, Ineligible):
        reason = step.reason.replace("\n", r"\n")
        return f"refused {step.producer}: {reason}"
    consumers = " ".join(step.consumers)
    return f"priority {step.producer}: {consumers} | {step.fused_us!r} {step.unfused_us!r}"


def read_step(line: str) -> PriorityStep:
    kind, _, remaining = line.partition(" ")
    producer, _, remaining = remaining.partition(": ")
    if kind == "fused":
        first, _, second = remaining.partition(" -> ")
        return Fused(producer, first, second)
    if kind == "refused":
        return Ineligible(producer, remaining.replace(r"\n", "\n"))
    consumers, _, times = remaining.partition(" | ")
    fused, unfused = times.split()
    return Priority(producer, tuple(consumers.split()), float(fused), float(unfused))


def read_steps(file: Path) -> dict[str, tuple[PriorityStep, ...]]:
    """The steps that were recorded of each module."""
    return {name: tuple(map(read_step, lines)) for name, lines in sections_of(file).items()}


card = lru_cache(read_card)
steps_of = lru_cache(read_steps)


def gpu_model_of(programs: Programs) -> GpuModel:
    unroll = re.search(r"max_unroll_factor=(\d+)", programs.flags)
    gpu_model = load_compiler(f"gpu-{programs.version}").gpu
    assert gpu_model is not None
    return replace(
        gpu_model,
        max_unroll=int(unroll[1]) if unroll else 32,
        has_heroless_triton="heroless_priority_fusion=true" in programs.flags,
    )


def _in_order(steps: tuple[PriorityStep, ...]) -> Iterator[str]:
    """Scores and refusals come in any order between two fusions."""
    group: list[str] = []
    for step in steps:
        if isinstance(step, Fused):
            yield from (*sorted(group), written(step))
            group = []
        else:
            group.append(written(step))
    yield from sorted(group)


def _record_steps(options: Namespace) -> Iterator[Finding]:
    version = ".".join(compiling.version_of(options.python).split(".")[:2])
    for programs in all_programs():
        if options.only not in (None, programs.name) or programs.version != version:
            continue
        for target in programs.targets:
            lines: list[str] = []
            texts = list(programs.texts.values())
            records = compiling.record_all(options.python, texts, target, programs.flags)
            for (name, text), recorded in zip(programs.texts.items(), records, strict=True):
                for _ in range(_MORE_TRIES if isinstance(recorded, str) else 0):
                    again = compiling.record_all(options.python, [text], target, programs.flags)
                    recorded = recorded if isinstance(again[0], str) else again[0]
                if isinstance(recorded, str):
                    raise SystemExit(f"{programs.name}, {target}: {name}: {recorded[:300]}")
                lines += [f"# {name}", *_in_order(recorded.record.steps)]
            words = f"{len(texts)} modules, {len(lines) - len(texts)} steps"
            text = "\n".join(lines) + "\n"
            yield keep(programs.record(target), text, words, is_checked=options.check)


# What passes around it make.


@dataclass(frozen=True, slots=True)
class Record:
    """What the pass of ``book`` in a version made of a module."""

    book: RuleBook[Any]
    version: str
    before: str
    after: str

    def difference(self, changed: RuleBook[Any] | None = None) -> str | None:
        """Between what the replay makes, by a ``changed`` book where one is given, and that."""
        plan = replay_pass(changed or self.book, self.version, parse(self.before))
        return difference(plan.module, parse(self.after))


def _texts_of(file: Path) -> list[str]:
    return _MODULE.split(file.read_text(encoding="utf-8"))[2::2]


def read_records(file: Path) -> list[Record]:
    pass_name, _, version = file.stem.partition(".")
    book = load_compiler(version).find(pass_name).book
    texts = _texts_of(file)
    return [Record(book, version, *pair) for pair in zip(texts[::2], texts[1::2], strict=True)]


PASS_RECORDS = {
    f"{file.stem}.{index}": record
    for file in sorted(PASSES.glob("*.hlo"))
    for index, record in enumerate(read_records(file))
}


def difference(ours: Module, theirs: Module) -> str | None:
    """The first thing in which two modules differ, or all tilings where no more than these do."""
    divergence = find_divergence(ours, theirs)
    if divergence is not None:
        return f"{divergence.ours} here, {divergence.theirs} in the compiler"
    our_tilings, their_tilings = tilings(ours), tilings(theirs)
    return (
        None
        if our_tilings == their_tilings
        else f"tilings {our_tilings} here, {their_tilings} in the compiler"
    )


def tilings(module: Module) -> Counter[BlockLevelConfig]:
    configs = (block_level_config(instruction) for instruction in MutableModule(module).walk())
    return Counter(filter(None, configs))


def _record_passes(options: Namespace) -> Iterator[Finding]:
    version = compiling.gpu_compiler_of(options.python)
    for pass_name in [book.pass_name for book in load_compiler(version).books]:
        file = PASSES / f"{pass_name}.{version}.hlo"
        texts = [pass_record.before for pass_record in read_records(file)] if file.exists() else []
        for added in options.add:
            if added.name.startswith(f"{pass_name}."):
                texts += _texts_of(added)
        if not texts or options.only not in (None, pass_name):
            continue
        pairs: list[str] = []
        for ran in compiling.run_all(options.python, pass_name, texts):
            if isinstance(ran, str):
                raise SystemExit(f"{file.name}: {ran[-300:]}")
            pairs += [f"{pass_record.strip()}\n\n" for pass_record in ran.runs[0]]
        yield keep(file, "".join(pairs), f"{len(texts)} modules", is_checked=options.check)


# Tiles.

_GIVEN = re.compile(r'"output_tiles":\[\{"sizes":\[([^\]]*)\]')
_ROOT = re.compile(r"^  ROOT ([\w.]+) = ", re.MULTILINE)
_LOGGED = re.compile(
    r" (\d+) tile_propagation\.cc:\d+\] PropagateTileToInput:\n  hlo: %([\w.\-]+) = .*\n"
    r"  output_tile: \(.*?\) -> (.*)\n"
)


def read_kernels() -> dict[str, str]:
    return modules_of((TILES / "kernels.hlo").read_text(encoding="utf-8"))


def read_tiles() -> dict[str, list[str]]:
    return sections_of(TILES / "kernels.txt")


def given_tiles(text: str) -> list[int]:
    sizes = _GIVEN.search(text)
    assert sizes is not None
    return [int(size.strip('"')) for size in sizes[1].split(",")]


def logged_tiles(text: str, log: str) -> list[str]:
    """What the log says of the tiling that a kernel was given. The root comes first in each."""
    root = _ROOT.search(text)
    assert root is not None
    sizes = f" sizes {given_tiles(text)} strides "
    is_given: defaultdict[str, bool] = defaultdict(bool)
    tiles = set()
    for thread, name, tile in _LOGGED.findall(log):
        if name == root[1]:
            is_given[thread] = sizes in tile
        if is_given[thread] and "." not in name:  # no copy, in what is fused already
            tiles.add(f"{name}: {tile}")
    return sorted(tiles)


def _record_tiles(options: Namespace) -> Iterator[Finding]:
    lines = []
    logs = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "tile_propagation=1"}
    for name, text in read_kernels().items():
        log = compiling.log_of(options.python, "priority-fusion", text, logs=logs)
        lines += [f"# {name}", *logged_tiles(text, log)]
    text = "\n".join(lines) + "\n"
    yield keep(TILES / "kernels.txt", text, f"{len(lines)} lines", is_checked=options.check)


# Orders of users.


def _record_users(options: Namespace) -> Iterator[Finding]:
    if options.check:
        raise SystemExit("users: only written, not compared")
    for file in sorted(USERS.glob(f"{options.only or '*'}.hlo")):
        text = file.read_text(encoding="utf-8")
        headings = dict(_HEADING.findall(text))
        folder = file.with_suffix("")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        passes, is_put = headings["passes"].split(), "layouts" in headings
        with TemporaryDirectory() as scratch:
            *stages, record = compiling.dump_stages(
                options.python, text, passes, Path(scratch), is_put=is_put
            )
            _keep_stages(stages, record, folder)
        yield note(f"{folder.name} is written")


def _keep_stages(stages: list[Path], record: Path, folder: Path) -> None:
    last = ""
    for stage in stages:
        module = stage.read_text(encoding="utf-8")
        if module != last or stage is stages[-1]:
            (folder / stage.name).write_text(module, encoding="utf-8")
            shutil.copy(stage.with_suffix(".hlo.pb"), folder)
        last = module
    users = recorded_users(read_priority_fusion(record.read_bytes(), record.name).steps)
    names = {instruction.name for instruction in parse(last).walk()}
    lines = [
        f"{value}: {' '.join(order)}\n"
        for value, order in users.items()
        if len(order) > 1 and names.issuperset((value, *order))
    ]
    (folder / "users.txt").write_text("".join(sorted(lines)), encoding="utf-8")


RECORDERS = {
    "gpu": _record_steps,
    "passes": _record_passes,
    "tiles": _record_tiles,
    "users": _record_users,
}


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("kind", choices=RECORDERS)
    parser.add_argument("--python", default=sys.executable, help="one that has jax, with CUDA")
    parser.add_argument("--check", action="store_true", help="compare and do not write")
    parser.add_argument("--only", help="one file, or one pass")
    parser.add_argument("--add", type=Path, nargs="+", default=[], metavar="FILE")


def findings(options: Namespace) -> Iterator[Finding]:
    yield from RECORDERS[options.kind](options)
