"""Compiles a fleet of real dumps, for checks that need hundreds of modules of every kind.

Each dump goes to OUT/<target>/<program>[+<variant>]/, and OUT/manifest.json says what each is. The
programs are those of samples/ and of programs/ here, which were chosen so that most operations and
pairs of operations of a larger corpus are in few lines. Some need flax, optax or other packages. A
program that a target refuses is recorded as skipped, with the compiler's own words; one that dies
after its HLO stages keeps its dump, as partial. ``--python 0.12=PATH`` names a Python for each jax.
"""

import ast
import fnmatch
import itertools
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from conformance.compiling import version_of
from conformance.findings import ROOT, Finding, counted

FLEET = Path(__file__).resolve().parent
SAMPLES = ROOT / "samples"
LONGEST = 3600  # seconds for one compile
LONGEST_RECORD = 60  # and with a Fusion Explorer record, whose cost grows with the square

# Label: what compile.py is asked for, and the jax it is asked of.
TARGETS: dict[str, tuple[str, str]] = {
    "cpu": ("cpu", "0.12"),
    "h100": ("h100", "0.12"),
    "a100": ("a100", "0.12"),
    "h200": ("h200", "0.12"),
    "b200": ("b200", "0.12"),
    "tpu-v5e": ("tpu:v5e:1x1", "0.12"),
    "cpu-jaxlib-0.10": ("cpu", "0.10"),
    "h100-jaxlib-0.10": ("h100", "0.10"),
    "h100-jaxlib-0.11": ("h100", "0.11"),
}
# With the passes that priority fusion replaced.
OLDER_PASSES: dict[str, tuple[str, str]] = {
    f"{card}-jaxlib-{version}": (card, version)
    for version in ("0.4.35", "0.4.34")
    for card in ("a100", "h100")
}
FIRST = ("cpu", "h100")  # every program is compiled for these, and for one of the others
OTHERS = tuple(label for label in TARGETS if label not in FIRST)
BACKENDS = ("cpu", "h100", "tpu-v5e")


@dataclass(frozen=True, slots=True)
class Variant:
    """Some programs dumped another way. `record` adds a Fusion Explorer record to the stages."""

    name: str
    programs: tuple[str, ...]
    targets: tuple[str, ...] = FIRST
    flags: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    record: bool = False


def programs_of(file: str) -> list[str]:
    """The names in the table of a program file, read without running it."""
    tree = ast.parse((FLEET / "programs" / f"{file}.py").read_text())
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="programs")], value=ast.Dict(keys=keys)):
                return [f"{file}.{ast.literal_eval(key)}" for key in keys if key]
    return []  # of another check


PLAIN = Variant("", ())
WITHOUT_PRIORITIES = Variant(
    "", (), tuple(OLDER_PASSES), ("--xla_gpu_enable_priority_fusion=false",), record=True
)
VARIANTS = (
    Variant(
        "record",
        ("softmax", "attention", "elementwise", "gradients.layer_norm", "optax_updates.adam"),
        BACKENDS,
        record=True,
    ),
    Variant(
        "record",
        ("softmax", "attention", "elementwise"),
        ("cpu-jaxlib-0.10", "h100-jaxlib-0.10"),
        record=True,
    ),
    Variant(
        "long-text",
        ("concatenate", "control.nested", "dots.gated"),
        (*BACKENDS, "h100-jaxlib-0.10"),
        ("--xla_dump_hlo_as_long_text",),
    ),
    Variant(
        "without-triton-gemm",
        tuple(programs_of("products")),
        ("h100",),
        ("--xla_gpu_enable_triton_gemm=false",),
    ),
    Variant("timestamp", ("softmax", "loop"), flags=("--xla_dump_include_timestamp",)),
    Variant("subfolder", ("softmax",), flags=("--xla_dump_hlo_to_subfolder",)),
    Variant(
        "constants",
        ("surroundings.constants", "windows.resize"),
        BACKENDS,
        ("--xla_dump_large_constants",),
    ),
    Variant(
        "fusion-passes",
        ("attention", "reductions"),
        BACKENDS,
        ("--xla_dump_hlo_pass_re=.*fusion.*",),
    ),
    Variant(
        "get-tuple-element",
        ("loop", "reductions", "gradients.layers"),
        flags=("--xla_dump_compact_gte=false",),
    ),
    Variant(
        "protos",
        ("softmax",),
        flags=("--xla_dump_hlo_as_text=false", "--xla_dump_hlo_as_proto"),
    ),
    Variant("stdout", ("softmax",), flags=("--xla_dump_to=-",)),
    Variant(
        "gspmd",
        ("sharded.constrained", "sharded.cube", "sharded.ring", "sharded.step"),
        (*BACKENDS, "h100-jaxlib-0.10"),
        environment=(("JAX_USE_SHARDY_PARTITIONER", "0"),),
    ),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One dump to be made."""

    program: str
    target: str
    variant: Variant = PLAIN

    @property
    def folder(self) -> str:
        name = f"+{self.variant.name}" if self.variant.name else ""
        return f"{self.target}/{self.program}{name}"

    @property
    def source(self) -> str:
        """The program as compile.py names it."""
        file, _, name = self.program.partition(".")
        if name:
            return f"{FLEET / 'programs' / file}.py:{name}"
        return f"{SAMPLES / 'programs' / file}.py"


@dataclass(frozen=True, slots=True)
class Dump:
    """What the manifest says of a run. `seconds` is a whole compile with its dumping."""

    program: str
    target: str
    variant: str
    jaxlib: str
    flags: tuple[str, ...]
    environment: dict[str, str]
    status: str  # compiled, partial, skipped
    message: str
    seconds: float
    files: int
    bytes: int


def all_programs() -> list[str]:
    samples = sorted(path.stem for path in (SAMPLES / "programs").glob("*.py"))
    files = sorted(path.stem for path in (FLEET / "programs").glob("*.py"))
    return [*samples, *(name for file in files for name in programs_of(file))]


def all_runs() -> list[Run]:
    """Every run, in an order that is mixed early on."""
    runs = []
    for number, program in enumerate(all_programs()):
        runs += [Run(program, target) for target in (*FIRST, OTHERS[number % len(OTHERS)])]
    for variant in VARIANTS:
        runs += [Run(p, target, variant) for p in variant.programs for target in variant.targets]
    random.Random(0).shuffle(runs)
    return runs


def older_runs() -> list[Run]:
    """Each program for one card and version in turn; what these lack is recorded as skipped."""
    targets = itertools.cycle(OLDER_PASSES)
    return [Run(program, next(targets), WITHOUT_PRIORITIES) for program in all_programs()]


def last_words(errors: str) -> str:
    """The line of a compiler's error output that says what is wrong."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    messages = [line for line in lines if "Error: " in line or "Check failed" in line]
    return (messages or lines or ["no message"])[-1][:500]


def child(
    run: Run, directory: Path, python: str, *options: str, limit: int = LONGEST
) -> tuple[bool, str]:
    """Runs compile.py: whether it failed, and what it says about that."""
    target = (TARGETS | OLDER_PASSES)[run.target][0]
    if target.startswith("tpu") and run.program.startswith("sharded."):
        target = "tpu:v5e:2x4"
    command = [python, str(SAMPLES / "compile.py"), run.source, target, str(directory), *options]
    command += [f"--flag={flag}" for flag in run.variant.flags]
    environment = os.environ | dict(run.variant.environment)
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit,
            env=environment,
            cwd=directory,
        )
    except subprocess.TimeoutExpired:
        return True, f"took longer than {limit} s"
    if process.stdout:
        (directory / "stdout.txt").write_text(process.stdout)
    return process.returncode != 0, last_words(process.stderr)


def make(run: Run, directory: Path, python: str, jaxlib: str) -> Dump:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    start = time.monotonic()
    failed, message = child(run, directory, python)
    seconds = time.monotonic() - start
    if run.variant.record:
        with tempfile.TemporaryDirectory() as record:
            child(run, Path(record), python, "--record", limit=LONGEST_RECORD)
            for path in Path(record).glob("*._fusion.*"):
                shutil.move(path, directory)
    files = [path for path in directory.rglob("*") if path.is_file()]
    if not files:
        directory.rmdir()
    return Dump(
        program=run.program,
        target=run.target,
        variant=run.variant.name,
        jaxlib=jaxlib,
        flags=run.variant.flags,
        environment=dict(run.variant.environment),
        status=("partial" if files else "skipped") if failed else "compiled",
        message=message if failed else "",
        seconds=round(seconds, 2),
        files=len(files),
        bytes=sum(path.stat().st_size for path in files),
    )


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", action="append", default=[], metavar="VERSION=PATH")
    parser.add_argument("--only", default="*", metavar="GLOB", help="such as 'indexing.*'")
    parser.add_argument("--targets", metavar="NAME,NAME", help="all of them where left out")
    parser.add_argument("--older-passes", action="store_true", help="for jaxlib 0.4.3x instead")


def findings(options: Namespace) -> Iterator[Finding]:
    pythons = dict(entry.split("=", 1) for entry in options.python)
    versions = {label: version_of(python) for label, python in pythons.items()}
    targets_known = OLDER_PASSES if options.older_passes else TARGETS
    labels = options.targets.split(",") if options.targets else targets_known
    targets = [label for label in labels if targets_known[label][1] in pythons]
    options.out.mkdir(parents=True, exist_ok=True)
    manifest = options.out / "manifest.json"
    dumps = json.loads(manifest.read_text()) if manifest.exists() else {}
    for run in older_runs() if options.older_passes else all_runs():
        if run.target not in targets or not fnmatch.fnmatch(run.program, options.only):
            continue
        version = targets_known[run.target][1]
        dump = make(run, (options.out / run.folder).resolve(), pythons[version], versions[version])
        dumps[run.folder] = asdict(dump)
        manifest.write_text(json.dumps(dumps, indent=1, sort_keys=True))
        yield counted(dump.status, f"{run.folder}: {dump.status} {dump.message}")
