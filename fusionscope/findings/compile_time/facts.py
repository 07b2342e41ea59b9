"""How long the passes of the compiler took."""

from __future__ import annotations

from fusionscope.facts.facts import Facts


class PassCost(Facts, frozen=True, kw_only=True):
    """All runs of one pass.

    name: the pass; a pipeline of passes counts as one too
    runs: how often it ran
    changes: how often it changed the module
    own_us: the time of all its runs in microseconds, without that of the passes that it runs
    """

    name: str
    runs: int
    changes: int
    own_us: int


class CompileTime(Facts, frozen=True, kw_only=True):
    """The time of the compiler's passes in microseconds.

    The time of a pass that changed the module includes that of writing the stage after it. Code
    generation is not a pass.

    total_us: from the begin of the first pass to the end of the last, in microseconds
    dump_us: of it, what pipelines spent on writing their first stage to the dump
    passes: all passes, those that took longest first
    """

    finding = "compile_time"

    total_us: int
    dump_us: int
    passes: tuple[PassCost, ...]


class Fields(Facts, frozen=True):
    """
    compile_time: how long the compiler's passes took, as the dump has it ([compile
        time](compile-time.md)); null if the dump has no times of passes
    """

    compile_time: CompileTime | None = None
