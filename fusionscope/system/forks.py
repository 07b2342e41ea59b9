"""Copies of this process, each of which goes on alone from where it was made.

What takes long to reach and cannot be copied piece by piece, such as a graph halfway through a
pass, costs a copy nothing.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

Key = TypeVar("Key")


def can_fork() -> bool:
    """Return whether this process can be copied. One in which JAX computes cannot: its threads may
    hold locks.
    """
    return hasattr(os, "fork") and "jax" not in sys.modules


class _Copy(NamedTuple):
    key: object
    pid: int
    pipe: int


class Forks(Generic[Key]):
    """The copies, by a key. Each ends with one result, which is pickled. Up to ``jobs`` work at
    once, besides this process.

    ``current`` is the key of the copy that this process is, or None if it is the first process.
    """

    def __init__(self, jobs: int) -> None:
        self.current: Key | None = None
        self._jobs = jobs
        self._copies: list[_Copy] = []
        self._results: dict[object, Any] = {}
        self._pipe = -1

    def split(self, key: Key) -> bool:
        """Copy this process. Return true in the copy, and false here, where it may be over."""
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Of threads: none holds a lock that a copy takes, which writes to its pipe only.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            os.close(reading)
            self.current, self._pipe = key, writing
            return True
        os.close(writing)
        self._copies.append(_Copy(key, pid, reading))
        while len(self._copies) >= self._jobs:
            self._wait()
        return False

    def end(self, result: object) -> NoReturn:
        """End this copy, with a result."""
        try:
            with os.fdopen(self._pipe, "wb") as pipe:
                pickle.dump(result, pipe, pickle.HIGHEST_PROTOCOL)
        finally:
            os._exit(0)  # what is open here belongs to the first process

    def fail(self) -> NoReturn:
        """End this copy without a result."""
        os._exit(1)

    @property
    def finished(self) -> dict[Key, Any]:
        """The results of the copies that have ended with one so far."""
        return dict(self._results)  # type: ignore[arg-type]

    def results(self) -> dict[Key, Any]:
        """Wait for all copies. Return the results of those that have one."""
        while self._copies:
            self._wait()
        return self.finished

    def _wait(self) -> None:
        key, pid, reading = self._copies.pop(0)
        with os.fdopen(reading, "rb") as pipe:
            data = pipe.read()
        os.waitpid(pid, 0)
        if data:
            self._results[key] = pickle.loads(data)
