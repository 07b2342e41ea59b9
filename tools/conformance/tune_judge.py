"""Times plans that `tune` found by itself: fresh processes, other code, no part of the search.

    python tools/conformance/tune_judge.py FILE.py DIRECTORY [NAME ...]

``FILE.py`` has programs with ``draw`` (tune_programs/), ``DIRECTORY`` a plan NAME.toml for each.
The program is compiled by jax as it is, through a hook that changes nothing, and inside of
``fusionscope.apply``, three times each. All run in turns on the same inputs, for ``--rounds``
rounds in each of ``--processes`` processes. A module that went through a hook lists its
instructions in another order, and the code of its loops may be faster or slower for that reason
alone, so the plan is compared with the faster of the other two.

The time of a compilation is the lower decile of its runs. In each round, the threads of the CPU
client that run parts of a kernel stay away from one processor, and all other threads on it: a busy
machine may otherwise keep them all on one processor for as long as a process lives, or not
(``--scattered`` leaves that to chance).

Prints the ratio of times with the plan to times without for each process, the median of these, and
the time of the program as it is to that of the faster one; in the end the geometric mean over
programs, in which programs without a plan count as 1. Exits with 1 if the median of a program is
over 1.02, or its results are neither those without the plan, nor about as near to a run in 64 bits.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

COPIES = 3
SLOWER = 1.02
LARGEST_DIFFERENCE = 1e-3  # of the largest magnitude
WORSE = 4.0  # error, to that without the plan


def load(file: Path):
    spec = importlib.util.spec_from_file_location("programs", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def distance(true, found) -> float:
    """Return the largest difference as a share of the largest magnitude."""
    import numpy

    return max(
        float(numpy.max(numpy.abs(numpy.subtract(a, b, dtype="float64"))))
        / (float(numpy.max(numpy.abs(numpy.asarray(a, "float64")))) or 1.0)
        for a, b in zip(true, found, strict=True)
        if a.size
    )


def place_threads() -> None:
    """Keep the workers of the CPU client away from a processor drawn at random, the rest on it."""
    processors = os.sched_getaffinity(os.getppid())
    if len(processors) > 1:
        own = {random.choice(sorted(processors))}
        for thread in Path("/proc/self/task").iterdir():
            is_worker = (thread / "comm").read_text().strip() == "tf_XLAEigen"
            os.sched_setaffinity(int(thread.name), processors - own if is_worker else own)


def race(
    file: Path, name: str, plan: Path, rounds: int, seed: int, is_scattered: bool
) -> dict[str, float]:
    import jax
    import numpy

    import fusionscope

    function = getattr(load(file), name)
    inputs = [jax.numpy.asarray(each) for each in function.draw(numpy.random.default_rng(seed))]

    def compiled():
        return jax.jit(function).lower(*inputs).compile()

    plain = [compiled() for _ in range(COPIES)]
    passed = compile_unchanged(compiled)
    with fusionscope.apply(plan) as applied:
        planned = compile_copies(compiled)
    if applied.programs != COPIES:
        raise SystemExit(f"{name}: the plan was applied {applied.programs} times, not {COPIES}")
    leaves = [jax.tree.leaves(each(*inputs)) for each in (plain[0], planned[0])]
    difference = distance(*leaves)
    if difference > LARGEST_DIFFERENCE:
        with jax.enable_x64(True):
            wide = [
                numpy.asarray(each, "float64") if each.dtype == "float32" else each
                for each in map(numpy.asarray, inputs)
            ]
            true = jax.tree.leaves(jax.jit(function)(*wide))
        plain_error, planned_error = (distance(true, each) for each in leaves)
        difference = max(0.0, planned_error / plain_error - WORSE)
    low = take_times([*plain, *passed, *planned], inputs, rounds, is_scattered)
    times = means(low)
    faster = min(times[:2])
    return {"ratio": times[2] / faster, "plain": times[0] / faster, "difference": difference}


def compile_unchanged(compiled) -> list:
    """Compile through a hook that changes nothing."""
    import jax

    from fusionscope.capture.hook import hooked

    with hooked(lambda module: module, "cpu"):
        found = compile_copies(compiled)
    jax.clear_caches()
    return found


def compile_copies(compiled) -> list:
    """Compile anew, ``COPIES`` times."""
    import jax

    found = []
    for _ in range(COPIES):
        jax.clear_caches()
        found.append(compiled())
    return found


def means(times: list[float]) -> list[float]:
    """Return the geometric mean of each ``COPIES`` times."""
    return [
        math.exp(statistics.mean(map(math.log, times[first : first + COPIES])))
        for first in range(0, len(times), COPIES)
    ]


def take_times(programs, inputs, rounds: int, is_scattered: bool = False) -> list[float]:
    """Run programs in turns. Return the lower decile of the seconds of each."""
    import jax

    times = [[] for _ in programs]
    for each in programs:
        jax.block_until_ready(each(*inputs))
    order = list(range(len(programs)))
    begin = time.perf_counter()
    jax.block_until_ready(programs[0](*inputs))
    repeats = max(1, int(0.001 / (time.perf_counter() - begin)))
    for _ in range(rounds):
        random.shuffle(order)
        if not is_scattered:
            place_threads()
        for number in order:
            begin = time.perf_counter()
            for _ in range(repeats):
                result = programs[number](*inputs)
            jax.block_until_ready(result)
            times[number].append(time.perf_counter() - begin)
    return [statistics.quantiles(each, n=10)[0] for each in times]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--scattered", action="store_true")
    parser.add_argument("--seed", type=int, help="run once in this process, and print JSON")
    asked = parser.parse_args()
    if asked.seed is not None:
        (name,) = asked.names
        plan = asked.directory / f"{name}.toml"
        found = race(asked.file, name, plan, asked.rounds, asked.seed, asked.scattered)
        print(json.dumps(found))
        return 0
    found: dict[str, float] = {}
    is_right = True
    for name in asked.names or list(load(asked.file).PROGRAMS):
        if not (asked.directory / f"{name}.toml").exists():
            found[name] = 1.0
            print(f"{name:20} no plan", flush=True)
            continue
        runs = []
        for seed in range(asked.processes):
            options = ["--rounds", str(asked.rounds), "--seed", str(seed)]
            options += ["--scattered"] * asked.scattered
            command = [sys.executable, __file__, str(asked.file), str(asked.directory), name]
            done = subprocess.run([*command, *options], capture_output=True, text=True)
            if done.returncode:
                print(f"{name:20} {done.stderr.strip().splitlines()[-1]}", flush=True)
                is_right = False
                continue
            runs.append(json.loads(done.stdout.splitlines()[-1]))
        if not runs:
            continue
        ratios = [each["ratio"] for each in runs]
        found[name] = statistics.median(ratios)
        difference = max(each["difference"] for each in runs)
        is_right &= found[name] <= SLOWER and difference <= LARGEST_DIFFERENCE
        shown = " ".join(f"{each:.3f}" for each in ratios)
        plain = statistics.median(each["plain"] for each in runs)
        print(
            f"{name:20} {found[name]:.3f}  ({shown})  as it is {plain:.3f}  "
            f"difference {difference:.1e}",
            flush=True,
        )
    mean = math.exp(statistics.mean(map(math.log, found.values())))
    good = sum(each < 0.67 for each in found.values())
    print(f"geometric mean {mean:.3f} over {len(found)}, {good} under 0.67")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
