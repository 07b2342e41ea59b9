"""What questions about large dumps take, beside the compile that made them.

    python benchmarks/large.py [--directory DIRECTORY] [--python PATH] [--only GLOB]...
                               [--command NAME]... [--rounds N]

Compiles the programs of programs/large.py for the CPU and for an H100 that need not be there, with
a Python that has jax (``--python``, where it is not this one), and asks about each dump, one
process for each question. All figures are processor time (user and system, of all threads and child
processes), the least of all rounds. A ratio is that to the compile: what the compiler takes for the
lowered program while it writes the dump and, in parentheses, while it writes none. ``again`` asks
another question of a dump that has been explained just before: its ratio is that to the first
question. All others find no trace of an earlier one. ``diff`` compares the dump with one by a flag
that takes a pass away. Memory is the peak of what is resident. Prints Markdown tables.

DIRECTORY keeps the dumps. Each program is compiled right before the questions about its dump, since
the speed of a machine that others use too changes by the minute.
"""

import argparse
import compileall
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from children import ROOT, Spent, fusionscope
from choosing import chosen

PROGRAMS = "benchmarks/programs/large.py"
NAMES = ("resnet", "transformer", "mixture", "diffusion", "recurrent")
DUMPS = tuple(f"{target}/{name}" for target in ("h100", "cpu") for name in NAMES)
# The other dump of a diff.
CHANGED = {
    "h100": "--xla_disable_hlo_passes=multi_output_fusion",
    "cpu": "--xla_disable_hlo_passes=dot-library-rewriter",
}
TARGETS = {"explain": 0.3, "again": 0.1, "verify": 1.0, "history": 0.3, "diff": 1.0}
QUESTIONS = ("explain", "verify", "history", "diff")


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a compile took, in processor seconds: ``compile`` without a dump, ``with_dump`` with
    one, and ``process`` the whole process that wrote the dump."""

    compile: float
    with_dump: float
    process: float
    jaxlib: str


def run_compile(name: str, python: str, *more: str) -> dict[str, float]:
    target, _, program = name.partition("/")
    command = [python, "benchmarks/compiling.py", f"{PROGRAMS}:{program}", target, *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    times: dict[str, float] = json.loads(done.stdout)
    return times


def make(name: str, directory: Path, python: str) -> Compiled:
    """Compile a program for its dump, and once more without one."""
    shutil.rmtree(directory / name, ignore_errors=True)
    dumped = run_compile(name, python, str(directory / name))
    alone = run_compile(name, python)
    return Compiled(alone["compile"], dumped["compile"], dumped["process"], str(dumped["jaxlib"]))


def make_changed(name: str, directory: Path, python: str) -> None:
    """Make the other dump of a diff, unless it is there."""
    changed = directory / f"{name}-changed"
    if not changed.exists():
        changed.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=directory))
        run_compile(name, python, str(made), f"--flag={CHANGED[name.partition('/')[0]]}")
        made.rename(changed)


def ask(question: str, dump: Path, work: Path) -> Iterator[tuple[str, Spent]]:
    """What a question takes, and for ``explain`` what a second one does."""
    cache = Path(tempfile.mkdtemp(dir=work))
    fusionscope("explain", "samples/dumps/cpu/elementwise", cache=cache)  # fills what is no dump's
    if question == "diff":
        changed = dump.with_name(f"{dump.name}-changed")
        yield question, fusionscope("diff", str(dump), str(changed), cache=cache)
        return
    yield question, fusionscope(question, str(dump), cache=cache)
    if question == "explain":
        yield "again", fusionscope("explain", "--top", "3", str(dump), cache=cache)


def ask_all(dump: Path, questions: list[str], rounds: int) -> dict[str, Spent]:
    found: dict[str, list[Spent]] = {}
    with tempfile.TemporaryDirectory() as work:
        for _ in range(rounds):
            for question in questions:
                for name, spent in ask(question, dump, Path(work)):
                    found.setdefault(name, []).append(spent)
    return {
        name: Spent(min(each.seconds for each in own), max(each.memory for each in own))
        for name, own in found.items()
    }


def size(dump: Path) -> int:
    return sum(path.stat().st_size for path in dump.rglob("*") if path.is_file())


def instructions(dump: Path) -> int:
    """Instructions of the largest stage."""
    stages = [path for path in dump.glob("module_*.txt") if path.open().read(9) == "HloModule"]
    return max(stages, key=lambda path: path.stat().st_size).read_text().count(" = ")


def ratios(name: str, spent: dict[str, Spent], compiled: Compiled) -> list[float]:
    bases = [compiled.with_dump, compiled.compile]
    if name == "again":
        bases = [spent["explain"].seconds]
    return [spent[name].seconds / base for base in bases]


def told(ratios: list[float]) -> str:
    first, *others = (f"{each:.2f}" for each in ratios)
    return f"{first} ({others[0]})" if others else first


def row(*cells: str) -> None:
    print("|", " | ".join(cells), "|", flush=True)


def begin(columns: list[str], jaxlib: str, rounds: int) -> None:
    print(
        f"Python {platform.python_version()}, dumps by jaxlib "
        f"{jaxlib}, {os.cpu_count()} cores, rounds: {rounds}."
    )
    print("\nRatios:\n")
    row("dump", "instructions", "MB", "compile", *(f"`{each}`" for each in columns), "memory")
    print("|---|" + "--:|" * (len(columns) + 4), flush=True)


def tell(names: list[str], directory: Path, python: str, rounds: int, questions: list[str]) -> None:
    """Compile each program right before the questions: a machine's speed changes by the minute."""
    columns = [
        column
        for question in questions
        for column in (("explain", "again") if question == "explain" else (question,))
    ]
    times: dict[str, Compiled] = {}
    asked: dict[str, dict[str, Spent]] = {}
    for name in names:
        times[name] = make(name, directory, python)
        if len(times) == 1:
            begin(columns, times[name].jaxlib, rounds)
        spent = asked[name] = ask_all(directory / name, questions, rounds)
        row(
            name,
            f"{instructions(directory / name):,}",
            f"{size(directory / name) / 1e6:.0f}",
            f"{times[name].with_dump:.1f} s",
            *(told(ratios(each, spent, times[name])) for each in columns),
            f"{max(each.memory for each in spent.values()) / 1e6:,.0f} MB",
        )
    for target in CHANGED:
        own = [name for name in names if name.startswith(f"{target}/")]
        if len(own) > 1:
            medians = ([median(one) for one in
                        zip(*(ratios(each, asked[name], times[name]) for name in own), strict=True)]
                       for each in columns)  # fmt: skip
            row(f"median, {target}", "", "", "", *map(told, medians), "")
    row("target", "", "", "", *(f"{TARGETS[each]}" for each in columns), "1,000 MB")
    print("\nSeconds, and megabytes at most:\n")
    row("dump", "without a dump", "its compile", "and all else", *(f"`{each}`" for each in columns))
    print("|---|" + "--:|" * (len(columns) + 3))
    for name in names:
        compiled, spent = times[name], asked[name]
        row(
            name,
            f"{compiled.compile:.1f}",
            f"{compiled.with_dump:.1f}",
            f"{compiled.process:.1f}",
            *(f"{spent[each].seconds:.1f}, {spent[each].memory / 1e6:,.0f}" for each in columns),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="keeps the dumps")
    parser.add_argument("--python", default=sys.executable, help="one that has jax")
    parser.add_argument("--only", action="append", metavar="GLOB", help="such as 'h100/*'")
    parser.add_argument("--command", action="append", choices=QUESTIONS)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    names = chosen(parser, DUMPS, options.only)
    compileall.compile_dir(ROOT / "fusionscope", quiet=2)  # as after an installation
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.directory or Path(temporary)
        questions = options.command or list(QUESTIONS)
        if "diff" in questions:
            for name in names:
                make_changed(name, directory.resolve(), options.python)
        tell(names, directory.resolve(), options.python, options.rounds, questions)


if __name__ == "__main__":
    main()
