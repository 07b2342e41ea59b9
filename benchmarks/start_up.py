"""How much processor time small commands take, beside a Python that does nothing.

    python benchmarks/start_up.py [--rounds N]

User and system time of child processes, all run in turn, round after round: other work on the
machine disturbs that less than it does seconds. Bytecode and what fusionscope keeps between runs
(forms of HLO text) are there before the first round. Prints a Markdown table of medians.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
BARE = "`python -c pass`"
COMMANDS = (
    "--help",
    "rules cpu-concat",
    "rules pf-negative",
    "explain --no-cache --no-try samples/dumps/cpu/elementwise",
    "explain --no-cache --no-try samples/dumps/cpu/concatenate",
    "explain --no-cache --no-try samples/dumps/h100/concatenate",
    "explain --no-cache samples/dumps/cpu/concatenate",
    "explain --no-cache samples/dumps/h100/concatenate",
    "explain samples/dumps/cpu/concatenate",
    "explain samples/dumps/h100/concatenate",
)


def processor_seconds(arguments: list[str], environment: dict[str, str]) -> float:
    child = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, cwd=ROOT, env=environment
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    jobs = {BARE: ["-c", "pass"]}
    for command in COMMANDS:
        jobs[f"`fusionscope {command}`"] = ["-m", "fusionscope", *command.split()]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "XDG_CACHE_HOME": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for arguments in jobs.values():
            processor_seconds(arguments, environment)
        rounds = [
            {name: processor_seconds(arguments, environment) for name, arguments in jobs.items()}
            for _ in range(options.rounds)
        ]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {options.rounds} rounds\n")
    print("| what | ms | times bare Python (half of the rounds) |\n|---|--:|--:|")
    bare = median(each[BARE] for each in rounds)
    for name in jobs:
        times = sorted(each[name] for each in rounds)
        low, high = times[len(times) // 4], times[-1 - len(times) // 4]
        ratio = f"{median(times) / bare:.1f} ({low / bare:.1f} to {high / bare:.1f})"
        print(f"| {name} | {median(times) * 1e3:.1f} | {'' if name == BARE else ratio} |")


if __name__ == "__main__":
    main()
