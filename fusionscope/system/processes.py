"""Child processes that leave nothing behind: no grandchildren, no files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from fusionscope.errors import UnusableInput
from fusionscope.system.signals import undisturbed

_SHOWN_BYTES = 1 << 20  # the end of an error stream
_BETWEEN_S = 1.0  # two looks at a process that works


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process. ``code`` is negative for a signal; ``errors`` is what it last said."""

    code: int
    errors: str
    is_late: bool


def run_child(
    command: Sequence[str],
    environment: Mapping[str, str] | None,
    limit_s: float,
    folder: Path | None = None,
    output: int | IO[bytes] = subprocess.DEVNULL,
    watch: Callable[[], None] | None = None,
) -> Ended:
    """Run ``command`` in ``folder`` for at most ``limit_s`` seconds, without input. ``watch`` is
    called about once a second meanwhile.

    All processes that it started end with it. Raises ``UnusableInput`` if it cannot be started.
    """
    # A pipe would stay open as long as a grandchild holds its other end.
    with TemporaryFile() as errors:
        with start_child(
            command,
            environment,
            input=subprocess.DEVNULL,
            output=output,
            errors=errors,
            folder=folder,
        ) as child:
            is_late = not _wait(child, limit_s, watch)
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _SHOWN_BYTES))
        return Ended(child.returncode, errors.read().decode("utf-8", errors="replace"), is_late)


def _wait(child: subprocess.Popen[bytes], limit_s: float, watch: Callable[[], None] | None) -> bool:
    """Return whether ``child`` ended within ``limit_s`` seconds."""
    end = time.monotonic() + limit_s
    while True:
        remaining_s = end - time.monotonic()
        try:
            child.wait(max(0.0, remaining_s if watch is None else min(remaining_s, _BETWEEN_S)))
            return True
        except subprocess.TimeoutExpired:
            if remaining_s <= _BETWEEN_S or watch is None:
                return False
            watch()


def run_for_output(
    command: Sequence[str],
    environment: Mapping[str, str] | None,
    limit_s: float,
    folder: Path | None = None,
) -> tuple[Ended, str]:
    """Run ``command`` in the same way. Return what it wrote to its output, too."""
    with TemporaryFile() as output:
        ended = run_child(command, environment, limit_s, folder, output)
        output.seek(0)
        return ended, output.read().decode("utf-8", errors="replace")


@contextlib.contextmanager
def start_child(
    command: Sequence[str],
    environment: Mapping[str, str] | None,
    *,
    input: int | IO[bytes],
    output: int | IO[bytes],
    errors: int | IO[bytes],
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in its own group, which is killed as a whole in the end.

    Raises ``UnusableInput`` if it cannot be started.
    """
    child: subprocess.Popen[bytes] | None = None
    try:
        with undisturbed():
            child = _start(command, environment, input, output, errors, folder)
        yield child
    finally:
        if child is not None:
            with undisturbed():
                _kill(child)


def _start(
    command: Sequence[str],
    environment: Mapping[str, str] | None,
    input: int | IO[bytes],
    output: int | IO[bytes],
    errors: int | IO[bytes],
    folder: Path | None,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=input,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # a name or variable may contain a zero byte
        words = error.strerror if isinstance(error, OSError) else error
        raise UnusableInput(f"{command[0]} cannot be run: {words}") from None


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill ``child`` and its whole group, and wait for it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)  # its group keeps its number, even when it is gone
        else:
            child.kill()
    child.wait()
