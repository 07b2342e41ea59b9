"""Prints stages that were dumped in binary form only, with jaxlib if it is installed."""

from __future__ import annotations

import importlib.util
import os
import selectors
import struct
import subprocess
import sys
import time
import weakref
from contextlib import ExitStack
from pathlib import Path

from fusionscope.dump.instruction_ids import module_part
from fusionscope.errors import UnusableInput
from fusionscope.system.processes import start_child

_PRINTER = Path(__file__).parent / "proto_printer.py"
_LIMIT_S = 300.0  # for one proto
_LENGTH = struct.Struct("<?Q")


class ProtoPrinter:
    """Prints protos in a child process, since a damaged one can end the process that reads it.

    The child starts with the first proto, and again after one that ended it.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._end = ExitStack()
        weakref.finalize(self, self._end.close)

    def print(self, data: bytes, file: str) -> str:
        """Return the HLO text of a ``.hlo.pb`` file.

        Raises ``UnusableInput``, also if jaxlib is missing.
        """
        module = module_part(data, file)
        if importlib.util.find_spec("jaxlib") is None:
            raise UnusableInput(
                "this stage was dumped as proto only, and reading that needs jaxlib",
                file=file,
                hint="pip install jaxlib, or dump again with --xla_dump_hlo_as_text",
            )
        if self._child is None:
            self._child = self._end.enter_context(
                start_child(
                    [sys.executable, "-P", str(_PRINTER)],
                    None,
                    input=subprocess.PIPE,
                    output=subprocess.PIPE,
                    errors=subprocess.DEVNULL,
                )
            )
        try:
            is_text, answer = _ask(self._child, module)
        except (OSError, EOFError) as error:
            self._end.close()
            self._child = None
            late = isinstance(error, TimeoutError)
            problem = f"not done after {_LIMIT_S:g} s" if late else "it ends the process"
            raise UnusableInput(f"jaxlib cannot read it: {problem}", file=file) from None
        if not is_text:
            raise UnusableInput(f"jaxlib cannot read it: {answer}", file=file)
        return answer


def _ask(child: subprocess.Popen[bytes], module: bytes) -> tuple[bool, str]:
    """Return whether the proto could be read, and its text or the error.

    Raises ``EOFError`` or ``OSError`` if the proto ends the child, ``TimeoutError`` if it takes too
    long.
    """
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(_LENGTH.pack(False, len(module)) + module)
    child.stdin.flush()
    until = time.monotonic() + _LIMIT_S
    is_text, length = _LENGTH.unpack(_read(child.stdout.fileno(), _LENGTH.size, until))
    return is_text, _read(child.stdout.fileno(), length, until).decode("utf-8", errors="replace")


def _read(stream: int, length: int, until: float) -> bytes:
    parts: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while length:
            if not selector.select(until - time.monotonic()):
                raise TimeoutError
            part = os.read(stream, min(length, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            length -= len(part)
    return b"".join(parts)
