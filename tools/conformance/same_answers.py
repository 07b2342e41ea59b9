"""Checks that `explain` prints the same bytes by several Pythons, and on a busy machine.

Each of DUMPS is a dump, or a directory with dumps in it. The first run of each dump is by the first
interpreter and has the machine to itself; it is compared with runs by every interpreter beside N
processes that only compute. Each run has its own hash seed and no cache. Exit code 1 if any bytes
differ.
"""

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance.findings import Finding, add_dumps, counted, problem
from conformance.outcomes import dumps


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


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)
    parser.add_argument("--python", action="append", metavar="PATH")
    parser.add_argument("--load", type=int, default=4)


def findings(options: Namespace) -> Iterator[Finding]:
    interpreters = options.python or [sys.executable]
    paths = [path for root in options.dumps for path in dumps(root)]
    expected = {path: explanation(interpreters[0], path, 0) for path in paths}
    with load(options.load):
        for seed, python in enumerate(interpreters, 1):
            for path in paths:
                if explanation(python, path, seed) == expected[path]:
                    yield counted("explanations with the same bytes")
                else:
                    yield problem("other bytes", f"{path}: differs by {python}")
