"""The instructions for which the compiler chooses among several implementations."""

from __future__ import annotations

from enum import StrEnum

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


class Basis(StrEnum):
    """What a choice rests on."""

    MEASURED = "measured"
    LOADED = "loaded"
    FIRST = "first"
    UNKNOWN = "unknown"


class Autotuned(Facts, frozen=True, kw_only=True):
    """An instruction that has several implementations, and what is known of them.

    instruction: its name before the choice
    shape: its result
    choice: the library or emitter that the compiler gave it, empty if no stage shows that
    configuration: the settings of what it chose, as ``name=value``
    choice_us: microseconds that its results in the dump say the choice took; null without them
    basis: ``measured`` (a log or results in the dump), ``loaded`` (the compiler was given
        results), ``first`` (it timed nothing and took the first that compiles), ``unknown``
    kernel: its kernel in the final module, null if none has the name
    emitter: the emitter of that kernel, empty if there is none
    source: file and line of its kernel
    generators: the libraries and emitters that were timed, the fastest first
    margin: the time of the second generator over that of the first; null if only one ran
    near_tie: whether the margin is at most 1.05
    candidates: all that were timed, in the order in which the compiler tried them
    """

    finding = "autotuned"

    instruction: str
    shape: str
    choice: str
    configuration: str
    choice_us: float | None
    basis: Basis
    kernel: str | None
    emitter: str
    source: str | None
    generators: tuple[GeneratorTime, ...]
    margin: float | None
    near_tie: bool
    candidates: tuple[Candidate, ...]


class Fields(Facts, frozen=True):
    """
    autotuned: the instructions for which the GPU compiler chooses among several implementations,
        those first that took longest where its log is in the dump
        ([times](times.md#which-implementation))
    """

    autotuned: tuple[Autotuned, ...] = ()
