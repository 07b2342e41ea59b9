"""How long a replay of the fusion passes takes beside the compile, as ratios within one run.

    python benchmarks/replay.py [--rounds N] [--target h100] [--python PATH] [--only GLOB]...

Needs a Python with jax (``--python``, where it is not this one). Compiles a transformer's gradient
step of 12 to 96 layers and the samples for the CPU, or for a GPU that is described, each in a
fresh process that notes how long the compiler alone took, and holds against that what it takes to
read the stages before the fusion passes and to replay these. Figures are processor time, the least
of all rounds. Prints a Markdown table.
"""

import argparse
import gc
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

from choosing import chosen  # noqa: E402
from timing import least  # noqa: E402

from fusionscope.dump import open_dump  # noqa: E402
from fusionscope.versions.choice import choose_compiler  # noqa: E402
from fusionscope.versions.context import read_context  # noqa: E402
from fusionscope.versions.runs import find_runs, replay  # noqa: E402

PROGRAMS = [f"benchmarks/layers.py:{layers}" for layers in (12, 24, 48, 96)]
PROGRAMS += [f"samples/programs/{name}.py" for name in ("attention", "cartpole", "reductions")]

# The processor time of the compiler, without tracing and without writing a dump.
TIMED = """
import sys, time
sys.path.insert(0, "samples")
import compile, jax
done = jax.stages.Lowered.compile
def timed(*arguments, **options):
    start = time.process_time()
    result = done(*arguments, **options)
    print(time.process_time() - start)
    return result
jax.stages.Lowered.compile = timed
path, _, name = sys.argv[1].partition(":")
target = sys.argv[2]
described = compile.DEVICES / f"{target}.txtpb"
program = compile.load(compile.Path(path), name or None)
compile.compile_program(program, str(described) if described.exists() else target)
"""


def compile_seconds(program: str, target: str, python: str) -> float:
    command = [python, "-c", TIMED, program, target]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "XLA_FLAGS": "" if target == "cpu" else "--xla_gpu_autotune_level=0",
    }
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    return float(done.stdout)


def dump(program: str, directory: Path, target: str, python: str) -> None:
    command = [python, "samples/compile.py", program, target, str(directory)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)


def replay_all(directory: Path) -> int:
    """The number of instructions before the first fusion pass."""
    (module,) = [each for each in open_dump(directory).modules if find_runs(each)]
    runs, context, compiler = (
        find_runs(module),
        read_context(module),
        choose_compiler(module).compiler,
    )
    for run in runs:
        replay(run.pass_name, module.read(run.before), context, compiler)
    return module.read(runs[0].before).instruction_count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--target", default="cpu", help="cpu, or a GPU such as h100")
    parser.add_argument("--python", default=sys.executable, help="one that has jax")
    parser.add_argument("--only", action="append", metavar="GLOB", help="such as '*layers.py:12'")
    options = parser.parse_args()
    programs = chosen(parser, PROGRAMS, options.only)
    rounds, target, python = options.rounds, options.target, options.python
    gc.disable()  # as the commands do
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {rounds} rounds\n")
    print("| program | instructions | replay | the compiler | ratio | µs an instruction |")
    print("|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for number, program in enumerate(programs):
            directory = Path(folder) / str(number)
            dump(program, directory, target, python)
            count = replay_all(directory)
            compiling = min(compile_seconds(program, target, python) for _ in range(rounds))
            taken = least(rounds, replay=(replay_all, directory))["replay"]
            name = program.partition("/")[2].removeprefix("programs/")
            print(
                f"| {name} | {count:,} | {taken:.2f} s | {compiling:.2f} s "
                f"| {taken / compiling:.2f} | {1e6 * taken / count:.0f} |"
            )


if __name__ == "__main__":
    main()
