"""Checks that `explain` prints the same bytes by several Pythons, and on a busy machine.

    python tools/conformance/same_answers.py DUMPS... [--python PATH]... [--load N]

Each of DUMPS is a dump, or a directory with dumps in it. The first run of each dump is by the first
interpreter and has the machine to itself; it is compared with runs by every interpreter beside N
processes that only compute. Each run has its own hash seed and no cache. Exit code 1 if any bytes
differ.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outcomes import dumps


def explanation(python: str, dump: Path, seed: int) -> bytes:
    """Return what `explain --format json` prints. Raises ``CalledProcessError`` if it fails."""
    command = [python, "-m", "fusionscope", "explain", dump, "--format", "json", "--no-cache"]
    environment = os.environ | {"PYTHONHASHSEED": str(seed)}
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep as many processes busy."""
    command = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--python", action="append", metavar="PATH")
    parser.add_argument("--load", type=int, default=4)
    options = parser.parse_args()
    interpreters = options.python or [sys.executable]
    paths = [path for root in options.dumps for path in dumps(root)]
    expected = {path: explanation(interpreters[0], path, 0) for path in paths}
    differing = 0
    with load(options.load):
        for seed, python in enumerate(interpreters, 1):
            for path in paths:
                if explanation(python, path, seed) != expected[path]:
                    differing += 1
                    print(f"{path}: differs by {python}", flush=True)
    runs = len(paths) * len(interpreters)
    print(f"{runs - differing} of {runs} explanations have the same bytes")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
