"""Child processes that leave nothing behind: no grandchildren, no files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from fusionscope.errors import UnusableInput
from fusionscope.system.signals import forwarded, undisturbed

_SHOWN_BYTES = 1 << 20  # the end of an error stream
_BETWEEN_S = 1.0  # two looks at a process that works
_FIRST_LOOK_S = 10.0  # at one that may take hours


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process. ``code`` is negative for a signal; ``errors`` is what it last said."""

    code: int
    errors: str
    is_late: bool


@dataclass(frozen=True, slots=True)
class Ran:
    """A process that had the terminal. ``code`` is negative for a signal; ``signals`` are those
    that were forwarded to it.
    """

    code: int
    signals: tuple[int, ...]


def run_in_foreground(
    command: Sequence[str], environment: Mapping[str, str], watch: Callable[[float], None]
) -> Ran:
    """Run ``command`` in the place of this process: with its standard streams, its terminal and its
    signals. ``watch`` is called with the seconds since the start after 10, 20, 40, … of them.

    What it leaves running goes on. Raises ``UnusableInput`` if it cannot be started.
    """
    children: list[subprocess.Popen[bytes]] = []

    def send(number: int) -> None:
        if not (number == signal.SIGINT and _has_terminal()):  # which sends Ctrl-C to both
            for child in children:
                child.send_signal(number)

    with forwarded(send) as received:
        try:
            child = subprocess.Popen(command, env=environment)
        except (OSError, ValueError) as error:
            raise _unstartable(command, error) from None
        children.append(child)
        for number in tuple(received):  # before there was a child
            send(number)
        begin, after_s = time.monotonic(), _FIRST_LOOK_S
        while True:
            try:
                code = child.wait(max(0.0, begin + after_s - time.monotonic()))
                return Ran(code, tuple(received))
            except subprocess.TimeoutExpired:
                watch(after_s)
                after_s *= 2


def _has_terminal() -> bool:
    """Return whether a standard stream is a terminal."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return any(stream is not None and stream.isatty() for stream in streams)


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
        raise _unstartable(command, error) from None


def _unstartable(command: Sequence[str], error: OSError | ValueError) -> UnusableInput:
    words = error.strerror if isinstance(error, OSError) else error
    return UnusableInput(f"{command[0]} cannot be run: {words}")


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill ``child`` and its whole group, and wait for it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)  # its group keeps its number, even when it is gone
        else:
            child.kill()
    child.wait()
