"""A child process that answers requests, each a line of JSON, with a line of JSON."""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile
from typing import IO, Any

from fusionscope.capture.capture import tell_problem
from fusionscope.system.processes import start_child


class AnsweringChild:
    """The process that ``command`` starts in ``environment``. Close it in the end."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._stack = ExitStack()
        self._errors = self._stack.enter_context(_temporary_file())
        self._child = self._stack.enter_context(
            start_child(
                command,
                environment,
                input=subprocess.PIPE,
                output=subprocess.PIPE,
                errors=self._errors,
            )
        )

    def close(self) -> None:
        self._stack.close()

    def exchange(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the answer. If there is none within ``limit_s`` seconds, or the process ended, it
        has ``died`` and a ``problem``.
        """
        child = self._child
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
            if not select.select([child.stdout], [], [], limit_s)[0]:
                return {"died": True, "problem": f"stopped: it took over {limit_s:g} s"}
            line = child.stdout.readline()
        except BrokenPipeError:
            line = b""
        if line:
            reply: dict[str, Any] = json.loads(line)
            return reply
        return {"died": True, "problem": self._last_words()}

    def _last_words(self) -> str:
        code = self._child.wait()
        self._errors.seek(0)
        errors = self._errors.read().decode("utf-8", errors="replace")
        return tell_problem({}, errors, code) or "the process ended"


@contextmanager
def _temporary_file() -> Iterator[IO[bytes]]:
    with TemporaryFile() as file:
        yield file
