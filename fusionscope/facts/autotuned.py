"""The instructions that the compiler's autotuner timed: plain data."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.dump.autotuner_log import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorTime:
    """The candidates of one library or emitter: the least time in microseconds, None if all
    failed, and how many there were and failed.
    """

    generator: str
    best_us: float | None
    candidates: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Autotuned:
    """An instruction that the compiler timed.

    ``kernel`` is its kernel in the final module, whose code is by ``emitter``; None if none has the
    name and shape. ``generators`` are the fastest first; ``margin`` is the time of the second over
    that of the first, None if only one ran, and a ``near_tie`` is one of at most 1.05.
    ``candidates`` are all, as the compiler tried them.
    """

    instruction: str
    shape: str
    kernel: str | None
    emitter: str
    source: str | None
    generators: tuple[GeneratorTime, ...]
    margin: float | None
    near_tie: bool
    candidates: tuple[Candidate, ...]
