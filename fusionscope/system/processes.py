"""Child processes that leave nothing behind: no grandchildren, no files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

from fusionscope.errors import UnusableInput
from fusionscope.system.signals import undisturbed

_SHOWN_BYTES = 1 << 20  # of an error stream, its end


@dataclass(frozen=True, slots=True)
class Ended:
    """``code`` is negative where a signal ended the process; ``errors`` is the end of its error
    stream."""

    code: int
    errors: str
    is_late: bool


def run_child(
    command: Sequence[str], environment: Mapping[str, str] | None, limit_s: float
) -> Ended:
    """Runs ``command`` for at most ``limit_s`` seconds, without input, its output thrown away.

    Whatever it started is ended with it. Raises ``UnusableInput`` where it cannot be started.
    """
    # A pipe would stay open as long as a grandchild holds its other end.
    with TemporaryFile() as errors:
        is_late = False
        with start_child(
            command, environment, input=subprocess.DEVNULL, output=subprocess.DEVNULL, errors=errors
        ) as child:
            try:
                child.wait(limit_s)
            except subprocess.TimeoutExpired:
                is_late = True
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _SHOWN_BYTES))
        return Ended(child.returncode, errors.read().decode("utf-8", errors="replace"), is_late)


@contextlib.contextmanager
def start_child(
    command: Sequence[str],
    environment: Mapping[str, str] | None,
    *,
    input: int | IO[bytes],
    output: int | IO[bytes],
    errors: int | IO[bytes],
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, which is killed as a whole in the end.

    Raises ``UnusableInput`` where it cannot be started.
    """
    child: subprocess.Popen[bytes] | None = None
    try:
        with undisturbed():
            child = _start(command, environment, input, output, errors)
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
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=input,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # a name or variable may hold a zero byte
        words = error.strerror if isinstance(error, OSError) else error
        raise UnusableInput(f"{command[0]} cannot be run: {words}") from None


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Ends ``child`` and all of its group, and waits for it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)  # its group bears its number, also when it is gone
        else:
            child.kill()
    child.wait()
