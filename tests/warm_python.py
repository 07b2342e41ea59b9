"""Child processes of fusionscope that need not import jax: forks of one that has.

To import jax takes a second, to compile a small program a tenth of that, and tests do so hundreds
of times. A fork runs the same file as `__main__`, with the same arguments and streams. One process
imports jax for each environment, and computes nothing: XLA reads its flags in the forks.

    PYTHON warm_python.py NUMBER

is that process. NUMBER is its end of a socket, which brings requests.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_MODULES = ("jax", "jax.numpy", "jax.experimental.topologies", "jax._src.interpreters.mlir")
_FREE = ("XLA_FLAGS", "PYTEST_CURRENT_TEST")  # what may differ between forks of one process
_LIMIT = 1 << 18  # bytes of a request


class Fork:
    """What `subprocess.Popen` is of a process, as far as fusionscope uses it."""

    def __init__(self, status: int, stdin: IO[bytes] | None, stdout: IO[bytes] | None) -> None:
        self._status = os.fdopen(status)
        self.pid = int(self._status.readline())
        self.stdin, self.stdout = stdin, stdout
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("", timeout or 0.0)
            with self._status as status:
                self.returncode = int(status.readline())
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


class WarmPythons:
    """Stands in for what starts a child: ``start_cold`` does so where no fork can.

    The first child of an environment is no fork: there may be no second.
    """

    def __init__(self, start_cold: Callable[..., Any], package: Path) -> None:
        self._start_cold, self._package = start_cold, package
        self._sockets: dict[frozenset[tuple[str, str]], socket.socket | None] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None,
        input: int | IO[bytes],
        output: int | IO[bytes],
        errors: int | IO[bytes],
        folder: Path | None,
    ) -> Any:
        variables = dict(os.environ if environment is None else environment)
        free = {name: variables.pop(name) for name in _FREE if name in variables}
        key = frozenset(variables.items())
        is_script = command[0] == sys.executable and self._package in Path(command[1]).parents
        if not is_script or key not in self._sockets:
            self._sockets |= {key: None} if is_script else {}
            return self._start_cold(command, environment, input, output, errors, folder)
        request = {
            "arguments": command[1:],
            "folder": str(folder or Path.cwd()),
            "variables": free,
        }
        return _fork(self._socket(key), request, (input, output, errors))

    def close(self) -> None:
        for requests in filter(None, self._sockets.values()):
            requests.close()
        for process in self._processes:
            process.wait()

    def _socket(self, key: frozenset[tuple[str, str]]) -> socket.socket:
        requests = self._sockets[key]
        if requests is None:
            requests, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with end:
                process = subprocess.Popen(
                    [sys.executable, __file__, str(end.fileno())],
                    env=dict(key),
                    pass_fds=[end.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            self._processes.append(process)
            self._sockets[key] = requests
        return requests


def _fork(
    requests: socket.socket, request: Mapping[str, Any], streams: Sequence[int | IO[bytes]]
) -> Fork:
    status, status_end = os.pipe()
    ends = [_open_end(number, stream) for number, stream in enumerate(streams)]
    files = [file for file, _ in ends]
    socket.send_fds(requests, [json.dumps(request).encode()], [*files, status_end])
    os.close(status_end)
    for file, stream in zip(files, streams, strict=True):
        if isinstance(stream, int):
            os.close(file)
    return Fork(status, ends[0][1], ends[1][1])


def _open_end(number: int, stream: int | IO[bytes]) -> tuple[int, IO[bytes] | None]:
    """Return what the child uses as ``number``, and the other end if it is a pipe."""
    if not isinstance(stream, int):
        return stream.fileno(), None
    if stream == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    assert stream == subprocess.PIPE
    reading, writing = os.pipe()
    return (writing, os.fdopen(reading, "rb")) if number else (reading, os.fdopen(writing, "wb"))


def serve(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request, and report how the forks end. Return in each what it is to do."""
    signals, wakeup = socket.socketpair()
    for end in (signals, wakeup):
        end.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, signals], [], [])
        if requests in ready:
            data, files, _, _ = socket.recv_fds(requests, _LIMIT, 4)
            if not data:
                sys.exit()  # the tests are over
            pid = os.fork()
            if not pid:
                return json.loads(data), files
            for file in files[:3]:
                os.close(file)
            statuses[pid] = files[3]
        if signals in ready:
            signals.recv(_LIMIT)
            _report_ends(statuses)


def _report_ends(statuses: dict[int, int]) -> None:
    for pid in list(statuses):
        pid_of_ended, status = os.waitpid(pid, os.WNOHANG)
        if pid_of_ended:
            file = statuses.pop(pid)
            os.write(file, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os.close(file)


def become(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Make this fork what a process is that ``request`` starts."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ |= request["variables"]
    sys.argv = request["arguments"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    os.write(files[3], f"{os.getpid()}\n".encode())
    os.close(files[3])


def main() -> None:
    for name in _MODULES:
        importlib.import_module(name)
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        request, files = serve(requests)
    become(request, files)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
