"""The instructions that the compiler's autotuner timed."""

from __future__ import annotations

from fusionscope.dump.autotuner_log import Candidate
from fusionscope.facts.facts import Facts


class GeneratorTime(Facts, frozen=True, kw_only=True):
    """The candidates of one library or emitter.

    generator: ``Triton``, ``cuBLAS``, ``cuDNN``, or the name in the log
    best_us: the least time of its candidates in microseconds, null if all failed
    candidates: how many were tried
    failed: how many of them failed
    """

    generator: str
    best_us: float | None
    candidates: int
    failed: int


class Autotuned(Facts, frozen=True, kw_only=True):
    """An instruction that the autotuner timed, and its candidates.

    instruction: its name in the log
    shape: its result in the log, without layout
    kernel: its kernel in the final module, null if none has the name
    emitter: the emitter of that kernel, empty if there is none
    source: file and line of its kernel
    generators: the libraries and emitters that were tried, the fastest first
    margin: the time of the second generator over that of the first; null if only one ran
    near_tie: whether the margin is at most 1.05
    candidates: all candidates, in the order in which the compiler tried them
    """

    finding = "autotuned"

    instruction: str
    shape: str
    kernel: str | None
    emitter: str
    source: str | None
    generators: tuple[GeneratorTime, ...]
    margin: float | None
    near_tie: bool
    candidates: tuple[Candidate, ...]


class Fields(Facts, frozen=True):
    """
    autotuned: the instructions that the compiler's autotuner timed, the slowest first; empty unless
        its log is in the dump ([times](times.md#the-autotuners-log))
    """

    autotuned: tuple[Autotuned, ...] = ()
