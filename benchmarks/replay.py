"""How long a replay of the CPU's fusion passes takes beside the compile, as ratios within one run.

    python benchmarks/replay.py [--rounds N]

Needs a Python with jax. Compiles a transformer's gradient step of 9, 17 and 34 layers and the
samples for CPU, each in a fresh process that notes how long the compiler alone took, and holds
against that what it takes to read the stages before the fusion passes and to replay these. Figures
are processor time, the least of all rounds. Prints a Markdown table.
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

from layers import LAYERS  # noqa: E402
from parse import least  # noqa: E402

from fusionscope.dump import open_dump  # noqa: E402
from fusionscope.replay.passes import (  # noqa: E402
    find_runs,
    pick_books,
    read_settings,
    replay,
)

PROGRAMS = [f"benchmarks/layers.py:{layers}" for layers in LAYERS]
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
compile.compile_program(compile.load(compile.Path(path), name or None), "cpu")
"""


def compile_seconds(program: str) -> float:
    command = [sys.executable, "-c", TIMED, program]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    return float(done.stdout)


def dump(program: str, directory: Path) -> None:
    command = [sys.executable, "samples/compile.py", program, "cpu", str(directory)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)


def replay_all(directory: Path) -> int:
    """The number of instructions before the first fusion pass."""
    (module,) = [each for each in open_dump(directory).modules if find_runs(each)]
    runs = find_runs(module)
    for run in runs:
        replay(run.pass_name, module.read(run.before), read_settings(module), pick_books(module))
    return module.read(runs[0].before).instruction_count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    gc.disable()  # as the commands do
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {rounds} rounds\n")
    print("| program | instructions | replay | the compiler | ratio | µs an instruction |")
    print("|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for number, program in enumerate(PROGRAMS):
            directory = Path(folder) / str(number)
            dump(program, directory)
            count = replay_all(directory)
            compiling = min(compile_seconds(program) for _ in range(rounds))
            taken = least(rounds, replay=(replay_all, directory))["replay"]
            name = program.partition("/")[2].removeprefix("programs/")
            print(
                f"| {name} | {count:,} | {taken:.2f} s | {compiling:.2f} s "
                f"| {taken / compiling:.2f} | {1e6 * taken / count:.0f} |"
            )


if __name__ == "__main__":
    main()
