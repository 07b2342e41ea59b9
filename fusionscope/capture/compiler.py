"""A compiler in a process that stays, for many small programs."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from fusionscope.capture.capture import environment_without_dump, mistake, tell_problem
from fusionscope.capture.targets import Target
from fusionscope.system.processes import start_child

_CHILD = Path(__file__).with_name("compiler_child.py")


@dataclass(frozen=True, slots=True)
class Compiled:
    """The text of an optimized module. ``problem`` is one line on why there is none, empty if there
    is one.
    """

    text: str = ""
    problem: str = ""


class CompilerProcess:
    """The compiler for ``target`` of the jaxlib that ``python`` has. Use it as a context.

    If a program ends the process, or takes over ``limit_s`` seconds, the process starts again.
    ``flags`` are XLA flags for all programs. Raises ``UnusableInput`` if there is no compiler.
    """

    def __init__(
        self,
        target: Target,
        *,
        flags: Sequence[str] = (),
        python: str = sys.executable,
        limit_s: float = 60.0,
    ) -> None:
        self._target, self._flags = target, tuple(flags)
        self._python, self._limit_s = python, limit_s
        self._stack = ExitStack()
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self.versions: dict[str, str] = {}

    def __enter__(self) -> CompilerProcess:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def compile(self, text: str, flags: Sequence[str] = ()) -> Compiled:
        """Compile HLO text with ``flags`` in addition to those of all programs."""
        options = dict(_option(flag) for flag in flags)
        told = self._exchange({"text": text, "options": options})
        if told.get("died"):
            self._start()
        return Compiled(told.get("final", ""), told.get("problem", ""))

    def _start(self) -> None:
        self._stack.close()
        errors = self._errors = self._stack.enter_context(_temporary_file())
        self._child = self._stack.enter_context(
            start_child(
                [self._python, str(_CHILD)],
                environment_without_dump(self._target, self._flags),
                input=subprocess.PIPE,
                output=subprocess.PIPE,
                errors=errors,
            )
        )
        device = {**asdict(self._target), "is_here": self._target.is_here}
        told = self._exchange({"device": device})
        if told.get("problem"):
            raise mistake(told["problem"], told, self._target)
        self.versions = told["versions"]

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        child = self._child
        assert child is not None and child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
            if not select.select([child.stdout], [], [], self._limit_s)[0]:
                return {"died": True, "problem": f"stopped: it took over {self._limit_s:g} s"}
            line = child.stdout.readline()
        except BrokenPipeError:
            line = b""
        if line:
            told: dict[str, Any] = json.loads(line)
            return told
        return {"died": True, "problem": self._last_words(child)}

    def _last_words(self, child: subprocess.Popen[bytes]) -> str:
        code = child.wait()
        assert self._errors is not None
        self._errors.seek(0)
        errors = self._errors.read().decode("utf-8", errors="replace")
        return tell_problem({}, errors, code) or "the process ended"


@contextmanager
def _temporary_file() -> Iterator[IO[bytes]]:
    with TemporaryFile() as file:
        yield file


def _option(flag: str) -> tuple[str, str]:
    name, _, value = flag.removeprefix("--").partition("=")
    return name, value
