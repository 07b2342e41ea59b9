"""A compiler in a process that stays, for many small programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fusionscope.capture.answering import AnsweringChild
from fusionscope.capture.capture import environment_without_dump, mistake
from fusionscope.capture.targets import Target

_CHILD = Path(__file__).with_name("compiler_child.py")
_AFTER_SCHEDULING = "fusion_block_level_rewriter"  # in the flag for a pass that changes kernels


@dataclass(frozen=True, slots=True)
class Compiled:
    """The text of an optimized module, or else in ``problem`` one line on why there is none."""

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
        self._child: AnsweringChild | None = None
        self.versions: dict[str, str] = {}

    def __enter__(self) -> CompilerProcess:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def compile(self, text: str, options: Mapping[str, str] | None = None) -> Compiled:
        """Compile HLO text. ``options`` are flags for it alone, by name.

        For a GPU the module is the scheduled one, unless a flag names a pass that changes kernels
        after that: then, and before jaxlib 0.11, code is generated, too, which takes most of the
        time.
        """
        assert self._child is not None
        flags = (*self._flags, *(options or {}))
        request = {
            "text": text,
            "options": options,
            "scheduled": not any(_AFTER_SCHEDULING in flag for flag in flags),
        }
        reply = self._child.exchange(request, self._limit_s)
        if reply.get("died"):
            self._start()
        return Compiled(reply.get("final", ""), reply.get("problem", ""))

    def _start(self) -> None:
        self._close()
        self._child = AnsweringChild(
            [self._python, str(_CHILD)], environment_without_dump(self._target, self._flags)
        )
        device = {**asdict(self._target), "is_here": self._target.is_here}
        reply = self._child.exchange({"device": device}, self._limit_s)
        if reply.get("problem"):
            self._close()
            raise mistake(reply["problem"], reply, self._target)
        self.versions = reply["versions"]

    def _close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
