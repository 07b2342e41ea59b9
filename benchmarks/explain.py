"""How long ``fusionscope explain`` takes, beside the compile that made the dump.

    python benchmarks/explain.py [--rounds N] --dump DIRECTORY --seconds SECONDS...

The time of ``explain`` on each DIRECTORY is divided by SECONDS, the time that the compiler took for
that dump (tools/conformance/make_fleet.py records it in manifest.json). The memory is the peak of
a process that holds every stage of the dump at once, with all operands resolved. The rounds
alternate between all of these, and the figures are medians. Prints a Markdown table.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent

READ_ALL = """
import sys
from fusionscope.dump import open_dump
dump = open_dump(sys.argv[1])
modules = [module.read(stage) for module in dump.modules for stage in module.stages]
operands = sum(len(instruction.operands) for module in modules for instruction in module.walk())
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One child process. ``seconds`` on the wall, ``memory`` in bytes at its peak."""

    seconds: float
    memory: int


def run(*arguments: str) -> Run:
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT
    )
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        assert child.stderr is not None
        raise SystemExit(child.stderr.read().decode())
    return Run(seconds, usage.ru_maxrss * 1024)


def text_size(dump: Path) -> int:
    """Bytes of HLO text."""
    texts = (path for path in dump.rglob("module_*.txt") if path.is_file())
    return sum(path.stat().st_size for path in texts if path.open().read(9) == "HloModule")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dump", type=Path, action="append", required=True, metavar="DIRECTORY")
    parser.add_argument("--seconds", type=float, action="append", required=True)
    options = parser.parse_args()
    if len(options.dump) != len(options.seconds):
        parser.error("each --dump needs the --seconds that its compile took")

    jobs: dict[str, tuple[str, ...]] = {}
    for dump in options.dump:
        jobs[f"explain {dump}"] = ("-m", "fusionscope", "explain", str(dump.resolve()))
        jobs[f"read {dump}"] = ("-c", READ_ALL, str(dump.resolve()))

    runs: dict[str, list[Run]] = defaultdict(list)
    for arguments in jobs.values():
        run(*arguments)  # so that no round compiles bytecode or builds the grammar's tables
    for _ in range(options.rounds):
        for name, arguments in jobs.items():
            runs[name].append(run(*arguments))
    seconds = {name: median(one.seconds for one in own) for name, own in runs.items()}
    memory = {name: max(one.memory for one in own) for name, own in runs.items()}

    def rate(name: str, base: float) -> str:
        ratios = sorted(one.seconds / base for one in runs[name])
        return f"{seconds[name] / base:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"

    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {options.rounds} rounds\n")
    print("| what | seconds | ratio (least to most) | of |\n|---|--:|--:|---|")
    for dump, compiled in zip(options.dump, options.seconds, strict=True):
        name = f"{dump.parent.name}/{dump.name}, {text_size(dump) / 1e6:.0f} MB of HLO text"
        print(
            f"| `explain` of {name} | {seconds[f'explain {dump}']:.2f} "
            f"| {rate(f'explain {dump}', compiled)} | its compile, {compiled:.1f} s |"
        )
        print(
            f"| reading all its stages | {seconds[f'read {dump}']:.2f} "
            f"| {memory[f'read {dump}'] / 1e6:.0f} MB at most | |"
        )


if __name__ == "__main__":
    main()
