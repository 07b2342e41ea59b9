"""Compiles a fleet of real dumps, for tests that need hundreds of modules of every kind.

    python tools/conformance/make_fleet.py OUT --python 0.12=PATH [--python 0.11=PATH]
        [--python 0.10=PATH] [--only GLOB] [--targets NAME,NAME] [--held-out | --large]
    python tools/conformance/make_fleet.py OUT --older-passes --python 0.4.35=PATH
        --python 0.4.34=PATH

Each dump goes to OUT/<target>/<program>[+<variant>]/, and OUT/manifest.json says what each is. The
programs are those of samples/ and of programs/ here; some need flax, equinox, optax, gymnax or
numpyro, and some of the held-out ones dm-haiku, jraph, diffrax, lineax, optimistix, blackjax, mctx
or pgx. A program that a target refuses is recorded as skipped, with the compiler's own words; one
that dies after its HLO stages keeps its dump, as partial.
"""

import argparse
import ast
import fnmatch
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

FLEET = Path(__file__).resolve().parent
SAMPLES = FLEET.parent.parent / "samples"
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
FIRST: tuple[str, ...] = (
    "cpu",
    "h100",
)  # every program is compiled for these, and for one of the others
OTHERS = tuple(label for label in TARGETS if label not in FIRST)

OWN = (
    "gradients",
    "control",
    "indexing",
    "numbers",
    "windows",
    "dots",
    "sharded",
    "surroundings",
    "repeated",
    "decoding",
)
MODELS = ("flax_models", "equinox_models", "optax_updates", "gymnax_environments", "numpyro_models")
# Written after the replay of the CPU fusion passes, which they are to test.
REPLAYED = ("solvers", "signals", "functions", "layers", "updates", "environments", "packages")
# Written before the GPU rules were, and compiled only when those stand, which they are to test.
HELD_OUT = (
    "transformers",
    "diffusion",
    "convolutional",
    "recurrent",
    "graphs",
    "numeric_types",
    "sums",
    "arrangements",
    "physics",
    "searching",
    "randomness",
    "images",
    "sound",
    "double",
    "optimisation",
    "distributed",
    "learned",
    "assembled",
    "generation",
)
HELD_OUT_MODELS = ("reinforcement", "probabilistic", "networks", "differential")
CARDS = ("a100", "h200", "b200")  # each held-out program is compiled for the h100 and one of these
OLDER_MODELS = ("flax_models", "equinox_models", "optax_updates", "gymnax_environments")
OLDER = ("h100-jaxlib-0.11", "h100-jaxlib-0.10")  # and some that need jax alone for one of these

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


PLAIN = Variant("", ())
RECORDED = Variant("record", (), ("cpu", "cpu-jaxlib-0.10"), record=True)
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


def programs_of(file: str) -> list[str]:
    """The names in the table of a program file, read without running it."""
    tree = ast.parse((FLEET / "programs" / f"{file}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "programs":
            assert isinstance(node.value, ast.Dict)
            return [f"{file}.{ast.literal_eval(key)}" for key in node.value.keys if key]
    raise ValueError(f"{file}.py has no table of programs")


def all_runs() -> list[Run]:
    """Every run but the held-out and the large ones, in an order that is mixed early on."""
    samples = sorted(path.stem for path in (SAMPLES / "programs").glob("*.py"))
    runs = [Run(program, target) for program in samples for target in TARGETS]
    own = [program for file in OWN for program in programs_of(file)]
    for number, program in enumerate(own):
        runs += [Run(program, target) for target in (*FIRST, OTHERS[number % len(OTHERS)])]
    for number, program in enumerate(name for file in MODELS for name in programs_of(file)):
        runs += [Run(program, target) for target in (*FIRST, ("tpu-v5e", "b200")[number % 2])]
    for program in (name for file in REPLAYED for name in programs_of(file)):
        runs += [Run(program, target, RECORDED) for target in RECORDED.targets]
    for variant in VARIANTS:
        runs += [Run(p, target, variant) for p in variant.programs for target in variant.targets]
    random.Random(0).shuffle(runs)
    return runs


def held_out_runs() -> list[Run]:
    plain = [program for file in HELD_OUT for program in programs_of(file)]
    models = [program for file in HELD_OUT_MODELS for program in programs_of(file)]
    runs = [Run(program, OLDER[number % 2]) for number, program in enumerate(plain[::2])]
    for number, program in enumerate(plain + models):
        runs += [Run(program, target) for target in ("h100", CARDS[number % len(CARDS)])]
    return runs


def older_runs() -> list[Run]:
    """The programs that need jax alone, and models that still install beside it, each for one card
    and version in turn."""
    files = sorted({*OWN, *REPLAYED, *HELD_OUT} - {"sharded", "distributed", "packages"})
    programs = sorted(path.stem for path in (SAMPLES / "programs").glob("*.py"))
    programs += [name for file in (*files, *OLDER_MODELS) for name in programs_of(file)]
    targets = itertools.cycle(OLDER_PASSES)
    runs = [Run(program, next(targets), WITHOUT_PRIORITIES) for program in programs]
    random.Random(0).shuffle(runs)
    return runs


def large_runs() -> list[Run]:
    return [Run(program, target) for program in programs_of("large") for target in FIRST]


def last_words(errors: str) -> str:
    """The line of a compiler's error output that says what is wrong."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    told = [line for line in lines if "Error: " in line or "Check failed" in line]
    return (told or lines or ["no message"])[-1][:500]


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
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit,
            env=environment,
            cwd=directory,
        )
    except subprocess.TimeoutExpired:
        return True, f"took longer than {limit} s"
    if done.stdout:
        (directory / "stdout.txt").write_text(done.stdout)
    return done.returncode != 0, last_words(done.stderr)


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


def version_of(python: str) -> str:
    command = [python, "-c", "import jaxlib; print(jaxlib.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", action="append", default=[], metavar="VERSION=PATH")
    parser.add_argument("--only", default="*", metavar="GLOB", help="such as 'indexing.*'")
    parser.add_argument("--targets", metavar="NAME,NAME", help="all of them where left out")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--held-out", action="store_true", help="the held-out programs instead")
    group.add_argument("--older-passes", action="store_true", help="for jaxlib 0.4.3x instead")
    group.add_argument("--large", action="store_true", help="the large programs instead")
    options = parser.parse_args()

    pythons = dict(entry.split("=", 1) for entry in options.python)
    versions = {label: version_of(python) for label, python in pythons.items()}
    known = OLDER_PASSES if options.older_passes else TARGETS
    wanted = options.targets.split(",") if options.targets else known
    targets = [label for label in wanted if known[label][1] in pythons]
    out = options.out / "large" if options.large else options.out
    out.mkdir(parents=True, exist_ok=True)
    manifest = out / "manifest.json"
    dumps = json.loads(manifest.read_text()) if manifest.exists() else {}
    runs = all_runs
    if options.large:
        runs = large_runs
    elif options.held_out:
        runs = held_out_runs
    elif options.older_passes:
        runs = older_runs
    for run in runs():
        if run.target not in targets or not fnmatch.fnmatch(run.program, options.only):
            continue
        version = known[run.target][1]
        dump = make(run, (out / run.folder).resolve(), pythons[version], versions[version])
        dumps[run.folder] = asdict(dump)
        manifest.write_text(json.dumps(dumps, indent=1, sort_keys=True))
        print(f"{run.folder}: {dump.status} {dump.message}", file=sys.stderr)


if __name__ == "__main__":
    main()
