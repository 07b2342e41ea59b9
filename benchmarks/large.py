"""What questions about large dumps take, beside the compile that made them.

    python benchmarks/large.py [--programs NAME] [--dump KIND] [--directory DIRECTORY]
                               [--python PATH] [--only GLOB]... [--command NAME]... [--rounds N]

Compiles the programs of programs/large.py, or those that packages bring (``--programs packages``),
for the CPU and for an H100 that need not be there, with a Python that has jax (``--python``, where
it is not this one), and asks about each dump, one process for each question. All figures are
processor time (user and system, of all threads and child processes), the least of all rounds. A
ratio is that to the compile: what the compiler takes for the lowered program while it writes the
dump and, in parentheses, while it writes none. ``untried`` is ``explain --no-try``. ``first line``
is the time until ``explain`` has printed one. ``again`` asks another question of a dump that has
been explained just before: its ratio is that to the first question. All others find no trace of an
earlier one. ``diff`` compares the dump with one by a flag that takes a pass away. Memory is the
peak of what is resident. Prints Markdown tables.

``--dump`` is what the compiler writes: ``text`` by the flags of README, ``protos`` beside it, as by
``fusionscope capture``, or ``record``: the text of the main stages and the fusion visualization.

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

# The other dump of a diff.
CHANGED = {
    "h100": "--xla_disable_hlo_passes=multi_output_fusion",
    "cpu": "--xla_disable_hlo_passes=dot-library-rewriter",
}
COLUMNS = {
    "explain": ("explain", "first line", "again"),
    "untried": ("untried",),
    "verify": ("verify",),
    "history": ("history",),
    "diff": ("diff",),
}


@dataclass(frozen=True, slots=True)
class Suite:
    """The programs of a file, the kind of dump, and the target ratio of each question."""

    path: str
    programs: tuple[str, ...]
    dump: str
    targets: dict[str, float]

    @property
    def dumps(self) -> tuple[str, ...]:
        return tuple(f"{target}/{name}" for target in ("h100", "cpu") for name in self.programs)

    @property
    def questions(self) -> list[str]:
        return [name for name, columns in COLUMNS.items() if self.targets.keys() & set(columns)]


SUITES = {
    "large": Suite(
        "benchmarks/programs/large.py",
        ("resnet", "transformer", "mixture", "diffusion", "recurrent"),
        "protos",
        {"explain": 0.3, "again": 0.1, "verify": 1.0, "history": 0.3, "diff": 1.0},
    ),
    "packages": Suite(
        "benchmarks/programs/packages.py",
        (
            "alphafold_trunk",
            "brax_unroll",
            "clip_forward",
            "diffrax_train",
            "equinox_train",
            "gpt2_train",
            "gymnax_rollout",
            "haiku_resnet_train",
            "jraph_train",
            "keras_convnext_train",
            "keras_efficientnet",
            "lbfgs_fit",
            "llama_decode",
            "mjx_step",
            "numpyro_nuts",
            "stable_diffusion",
            "t5_beam",
            "whisper_train",
        ),
        "text",
        {"explain": 0.6, "untried": 0.4, "again": 0.1, "verify": 1.0},
    ),
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a compile took, in processor seconds: ``compile`` without a dump, ``with_dump`` with
    one, and ``process`` the whole process that wrote the dump."""

    compile: float
    with_dump: float
    process: float
    jaxlib: str


@dataclass(frozen=True, slots=True)
class Compiler:
    """A Python that has jax, and what it is to compile."""

    python: str
    suite: Suite
    dump: str
    directory: Path

    def compile(self, name: str, *more: str) -> dict[str, float]:
        """Compile a program in a process of its own. Raises ``SystemExit`` where it fails."""
        target, _, program = name.partition("/")
        script = ("benchmarks/compiling.py", f"{self.suite.path}:{program}", target)
        command = [self.python, *script, *more, f"--dump={self.dump}"]
        process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        if process.returncode:
            raise SystemExit(
                f"{' '.join(command)} ended with {process.returncode}: {process.stderr}"
            )
        times: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
        return times

    def make(self, name: str) -> Compiled:
        """Compile a program for its dump, and once more without one."""
        shutil.rmtree(self.directory / name, ignore_errors=True)
        dumped = self.compile(name, str(self.directory / name))
        alone = self.compile(name)
        return Compiled(
            alone["compile"], dumped["compile"], dumped["process"], str(dumped["jaxlib"])
        )

    def make_changed(self, name: str) -> None:
        """Make the other dump of a diff, unless it is there."""
        changed = self.directory / f"{name}-changed"
        if not changed.exists():
            changed.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(dir=self.directory))
            self.compile(name, str(unfinished), f"--flag={CHANGED[name.partition('/')[0]]}")
            unfinished.rename(changed)


def ask(question: str, dump: Path, work: Path) -> Iterator[tuple[str, Spent]]:
    """Yield what a question takes; for ``explain``, its first line and a second question too."""
    cache = Path(tempfile.mkdtemp(dir=work))
    fusionscope("explain", "samples/dumps/cpu/elementwise", cache=cache)  # fills what is no dump's
    match question:
        case "diff":
            changed = dump.with_name(f"{dump.name}-changed")
            yield question, fusionscope("diff", str(dump), str(changed), cache=cache)
        case "untried":
            yield question, fusionscope("explain", "--no-try", str(dump), cache=cache)
        case "explain":
            spent = fusionscope("explain", str(dump), cache=cache)
            yield question, spent
            yield "first line", Spent(spent.first_line, 0, 0)
            yield "again", fusionscope("explain", "--top", "3", str(dump), cache=cache)
        case _:
            yield question, fusionscope(question, str(dump), cache=cache)


def ask_all(dump: Path, questions: list[str], rounds: int) -> dict[str, Spent]:
    answers: dict[str, list[Spent]] = {}
    with tempfile.TemporaryDirectory() as work:
        for _ in range(rounds):
            for question in questions:
                for column, spent in ask(question, dump, Path(work)):
                    answers.setdefault(column, []).append(spent)
    return {
        column: Spent(
            min(spent.seconds for spent in spents), max(spent.memory for spent in spents), 0
        )
        for column, spents in answers.items()
    }


def size(dump: Path) -> int:
    return sum(path.stat().st_size for path in dump.rglob("*") if path.is_file())


def instructions(dump: Path) -> int:
    """Instructions of the largest stage."""
    stages = [path for path in dump.glob("module_*.txt") if path.open().read(9) == "HloModule"]
    return max(stages, key=lambda path: path.stat().st_size).read_text().count(" = ")


@dataclass(frozen=True, slots=True)
class Line:
    """One dump of the table."""

    dump: str
    instructions: int
    size: int
    compiled: Compiled
    spent: dict[str, Spent]

    def ratios(self, column: str) -> list[float]:
        bases = [self.compiled.with_dump, self.compiled.compile]
        if column == "again":
            bases = [self.spent["explain"].seconds]
        return [self.spent[column].seconds / base for base in bases]


def formatted(ratios: list[float]) -> str:
    first, *others = (f"{ratio:.2f}" for ratio in ratios)
    return f"{first} ({others[0]})" if others else first


def row(*cells: str) -> None:
    print("|", " | ".join(cells), "|", flush=True)


def print_head(columns: list[str], jaxlib: str, compiler: Compiler, rounds: int) -> None:
    print(
        f"Python {platform.python_version()}, dumps ({compiler.dump}) by jaxlib "
        f"{jaxlib}, {os.cpu_count()} cores, rounds: {rounds}."
    )
    print("\nRatios:\n")
    row("dump", "instructions", "MB", "compile", *(f"`{column}`" for column in columns), "memory")
    print("|---|" + "--:|" * (len(columns) + 4), flush=True)


def print_ratios(line: Line, columns: list[str]) -> None:
    row(
        line.dump,
        f"{line.instructions:,}",
        f"{line.size / 1e6:.0f}",
        f"{line.compiled.with_dump:.1f} s",
        *(formatted(line.ratios(column)) for column in columns),
        f"{max(spent.memory for spent in line.spent.values()) / 1e6:,.0f} MB",
    )


def print_summary(lines: list[Line], columns: list[str], targets: dict[str, float]) -> None:
    for title, choice in (("median", median), ("most", max)):
        for target in CHANGED:
            group = [line for line in lines if line.dump.startswith(f"{target}/")]
            if len(group) > 1:
                figures = (
                    [choice(ratios) for ratios in zip(*(line.ratios(column) for line in group),
                                                      strict=True)]
                    for column in columns
                )  # fmt: skip
                row(f"{title}, {target}", "", "", "", *map(formatted, figures), "")
    row("target", "", "", "", *(str(targets.get(column, "")) for column in columns), "1,000 MB")


def print_seconds(lines: list[Line], columns: list[str]) -> None:
    print("\nSeconds, and megabytes at most:\n")
    titles = ("dump", "without a dump", "its compile", "and all else")
    row(*titles, *(f"`{column}`" for column in columns))
    print("|---|" + "--:|" * (len(columns) + 3))
    for line in lines:
        compiled = line.compiled
        times = (compiled.compile, compiled.with_dump, compiled.process)
        spent = (line.spent[column] for column in columns)
        row(line.dump, *(f"{time:.1f}" for time in times), *map(spent_cell, spent))


def spent_cell(spent: Spent) -> str:
    return f"{spent.seconds:.1f}" + (f", {spent.memory / 1e6:,.0f}" if spent.memory else "")


def measure(compiler: Compiler, names: list[str], questions: list[str], rounds: int) -> None:
    """Compile each program right before the questions: a machine's speed changes by the minute."""
    columns = [column for question in questions for column in COLUMNS[question]]
    lines: list[Line] = []
    for name in names:
        compiled = compiler.make(name)
        dump = compiler.directory / name
        if not lines:
            print_head(columns, compiled.jaxlib, compiler, rounds)
        spent = ask_all(dump, questions, rounds)
        lines.append(Line(name, instructions(dump), size(dump), compiled, spent))
        print_ratios(lines[-1], columns)
    print_summary(lines, columns, compiler.suite.targets)
    print_seconds(lines, columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--programs", choices=SUITES, default="large")
    parser.add_argument("--dump", choices=("text", "protos", "record"))
    parser.add_argument("--directory", type=Path, help="keeps the dumps")
    parser.add_argument("--python", default=sys.executable, help="one that has jax")
    parser.add_argument("--only", action="append", metavar="GLOB", help="such as 'h100/*'")
    parser.add_argument("--command", action="append", choices=COLUMNS)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    suite = SUITES[options.programs]
    names = chosen(parser, suite.dumps, options.only)
    compileall.compile_dir(ROOT / "fusionscope", quiet=2)  # as after an installation
    with tempfile.TemporaryDirectory() as temporary:
        directory = (options.directory or Path(temporary)).resolve()
        compiler = Compiler(options.python, suite, options.dump or suite.dump, directory)
        questions = options.command or suite.questions
        if "diff" in questions:
            for name in names:
                compiler.make_changed(name)
        measure(compiler, names, questions, options.rounds)


if __name__ == "__main__":
    main()
