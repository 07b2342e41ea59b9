"""What a search tried so far, in a file beside its plan, so that the next search goes on."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from fusionscope.dump import DumpedModule
from fusionscope.facts.facts import Facts
from fusionscope.hlo import to_text
from fusionscope.rerun.measuring import Ratio, Speed
from fusionscope.rerun.programs import find_program
from fusionscope.rerun.running import Numbers
from fusionscope.system.files import read_file, read_text, write_file

_SUFFIX = ".tried.json"
CONFIRMATION = "confirmation"  # the kind of what was measured again, in another process


class Attempt(Facts, frozen=True, kw_only=True):
    """One change, or several together, that was tried.

    kind: kind of the last change: ``program``, ``pass``, ``one kernel``, ``rule``, ``kept value``,
        ``pair`` or ``threshold``; ``confirmation`` if it is one of the best, measured again;
        ``compilation`` if it is one of the best, which the compiler did not compile as planned
    changes: what was changed, in words
    problem: why it was not timed; empty if it was
    numbers: how its results compare: ``equal`` or ``rounded differently``; null if it was not timed
    ratio: its time to that of the compiler's own plan; null if it was not timed
    verdict: ``faster``, ``slower``, ``no difference beyond noise`` or ``too few runs to compare``;
        null if it was not timed
    is_same: whether it produces the compiler's own kernels
    compile_s: seconds of compiling it; null if it was not timed
    estimated: its time to that of the compiler's own plan, as the compiler's cost model expects it
        of the replayed plan; null unless that decides, for a GPU that is absent
    """

    kind: str
    changes: str
    problem: str = ""
    numbers: Numbers | None = None
    ratio: Ratio | None = None
    verdict: Speed | None = None
    is_same: bool = False
    compile_s: float | None = None
    estimated: float | None = None

    @property
    def is_confirmation(self) -> bool:
        return self.kind == CONFIRMATION

    def is_above(self, ratio: float) -> bool:
        """Return whether it has no ratio, as it failed or changes nothing, or a larger one."""
        return self.ratio is None or self.ratio.low >= ratio


class _Tried(msgspec.Struct):
    program: str
    attempts: list[Attempt]


class Journal:
    """The attempts at one program, on the same inputs. Those of an earlier search are ``known``."""

    def __init__(self, plan: Path, module: DumpedModule, inputs: Path | None) -> None:
        content = hashlib.sha256(to_text(find_program(module)).encode())
        content.update(read_file(inputs) if inputs is not None else b"")
        self._file = plan.with_suffix(_SUFFIX)
        self._tried = _Tried(content.hexdigest(), [])
        self.known: dict[str, Attempt] = {}
        if self._file.exists():
            self._read()

    def _read(self) -> None:
        try:
            saved = msgspec.json.decode(read_text(self._file), type=_Tried)
        except msgspec.DecodeError:
            return  # it is written anew
        if saved.program == self._tried.program:
            self._tried = saved
            self.known = {attempt.changes: attempt for attempt in saved.attempts}

    def add(self, attempt: Attempt) -> None:
        """Record an attempt."""
        self._tried.attempts.append(attempt)
        write_file(self._file, msgspec.json.encode(self._tried).decode())
