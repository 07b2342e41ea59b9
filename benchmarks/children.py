"""What child processes take."""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spent:
    """What one child process took: processor ``seconds``, user and system, ``memory``, the peak of
    what was resident, in bytes, and ``first_line``, the processor seconds until it printed one."""

    seconds: float
    memory: int
    first_line: float


def processor_seconds(pid: int) -> float:
    """Return what a running process and its ended children took. Source: proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS


def spend(*arguments: str, environment: dict[str, str] | None = None) -> Spent:
    """Run ``python ARGUMENTS`` in the checkout. Raises ``SystemExit`` where it fails."""
    with tempfile.TemporaryFile() as problems:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=problems,
            cwd=ROOT,
            env=environment,
        )
        assert child.stdout is not None
        with child.stdout as printed:
            printed.readline()
            first_line = processor_seconds(child.pid)
            printed.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            problems.seek(0)
            problem = problems.read().decode()
            raise SystemExit(f"{' '.join(arguments)} ended with {child.returncode}: {problem}")
    return Spent(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, first_line)


def fusionscope(*arguments: str, cache: Path) -> Spent:
    """Run a command that keeps under ``cache`` what it keeps between runs, and uses bytecode."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return spend("-m", "fusionscope", *arguments, environment=environment)
