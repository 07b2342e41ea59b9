"""Child processes that leave nothing behind: no grandchildren, no files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from types import FrameType
from typing import IO

from fusionscope.errors import UnusableInput

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
    try:
        child = subprocess.Popen(
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
    try:
        yield child
    finally:
        kill(child)


def kill(child: subprocess.Popen[bytes]) -> None:
    """Ends ``child`` and all of its group, and waits for it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)  # its group bears its number, also when it is gone
        else:
            child.kill()
    child.wait()


def end_in_order() -> None:
    """From now on SIGTERM and SIGHUP end this process as Ctrl-C does: children are killed and
    temporary folders removed on the way out."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # nohup's choice is respected.
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # cleaning up is not interrupted by another one
    raise SystemExit(128 + number)
