"""What child processes take."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Spent:
    """What one child process took: processor ``seconds``, user and system, and ``memory``, the peak
    of what was resident, in bytes."""

    seconds: float
    memory: int


def spend(*arguments: str, environment: dict[str, str] | None = None) -> Spent:
    """Run ``python ARGUMENTS`` in the checkout. Raises ``SystemExit`` where it fails."""
    child = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment,
    )
    assert child.stderr is not None
    problem = child.stderr.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {child.returncode}: {problem}")
    return Spent(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def fusionscope(*arguments: str, cache: Path) -> Spent:
    """Run a command that keeps under ``cache`` what it keeps between runs, and uses bytecode."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return spend("-m", "fusionscope", *arguments, environment=environment)
