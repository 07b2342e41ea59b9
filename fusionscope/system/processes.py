"""Child processes that leave nothing behind: no grandchildren, no files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from types import FrameType
from typing import IO

from fusionscope.errors import UnusableInput

_ENDING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
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
        with _undisturbed():
            child = _start(command, environment, input, output, errors)
        yield child
    finally:
        if child is not None:
            with _undisturbed():
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


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals that would leave a child behind, for it is just started or killed, come later."""
    later: list[int] = []
    kept = {}
    if threading.current_thread() is threading.main_thread():  # others get none
        for number in _ENDING:
            handler = signal.getsignal(number)
            if callable(handler):
                kept[number] = handler
                signal.signal(number, lambda number, _frame: later.append(number))
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
        for number in later:
            signal.raise_signal(number)


def end_in_order() -> None:
    """From now on SIGTERM and SIGHUP end this process as Ctrl-C does: children are killed and
    temporary folders removed on the way out."""
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup's choice is respected
            signal.signal(number, _leave)


def _leave(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # cleaning up is not interrupted by another one
    raise SystemExit(128 + number)
