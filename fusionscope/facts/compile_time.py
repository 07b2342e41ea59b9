"""How long the passes of the compiler took: plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCost:
    """All runs of one pass, ``changes`` of which changed the module.

    ``own_us`` is their time in microseconds, without that of the passes that they run.
    """

    name: str
    runs: int
    changes: int
    own_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileTime:
    """The time of the passes in microseconds, from the begin of the first to the end of the last.

    ``dump_us`` is the part in which pipelines wrote their first stage to the dump; the time of a
    pass that changed the module includes that of writing the stage after it. Code generation is
    not a pass. ``passes`` has those that take longest first.
    """

    total_us: int
    dump_us: int
    passes: tuple[PassCost, ...]
