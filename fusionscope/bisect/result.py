"""The result of a bisection."""

from __future__ import annotations

from enum import StrEnum

from fusionscope.bisect.reproducer import Reproducer
from fusionscope.bisect.trials import FIRST_RUNS
from fusionscope.facts.facts import Facts
from fusionscope.rerun.running import ResultDifference


class By(StrEnum):
    """What a fusion is looked for to have changed."""

    NUMBERS = "numbers"
    TIME = "time"
    COMPILE_TIME = "compile-time"


class Operation(Facts, frozen=True):
    """An operation in a kernel, by its name before fusion if it has one.

    name: name before fusion
    opcode: opcode
    shape: shape
    source: line of the program; null if it is unknown
    """

    name: str
    opcode: str
    shape: str
    source: str | None


class FusedPair(Facts, frozen=True):
    """``producer`` in one kernel with ``consumer``, which reads it unless they ``are_siblings``.

    producer: name before fusion
    consumer: name before fusion
    are_siblings: whether neither reads the other
    """

    producer: str
    consumer: str
    are_siblings: bool


class Culprit(Facts, frozen=True, kw_only=True):
    """``pairs`` and ``operations`` that must be in one kernel to make the difference, inside of
    ``kernel``, which has ``of`` operations besides constants. There are no pairs if the kernel is
    not divided.

    kernel: name of the compiler's kernel
    of: its operations, without constants
    pairs: pairs in it that are needed; empty if it is not divided
    operations: operations that are in one kernel then
    reproducer: what runs it alone; null without ``--output``
    """

    kernel: str
    of: int
    pairs: tuple[FusedPair, ...]
    operations: tuple[Operation, ...]
    reproducer: Reproducer | None = None


class Cost(Facts, frozen=True):
    """Seconds of a run, or of the compilation: of the ``whole`` plan, ``without`` what was found,
    and ``unfused``.

    whole_s: of the whole plan
    without_s: without ``found``
    unfused_s: without any fusion
    """

    whole_s: float
    without_s: float
    unfused_s: float


class Bisection(Facts, frozen=True, kw_only=True, tag_field="schema", tag="fusionscope.bisect/1"):
    """The result.

    module: name of the module
    by: ``numbers``, ``time`` or ``compile-time``
    reference: what results are compared with, in words; null by time
    kernels: kernels of the plan that have several operations
    problem: why nothing was found; empty if something was
    tried: parts of the plan that were compiled
    failed: those of them that could not be compiled or run
    shows_in: runs of the whole plan with wrong results
    runs: runs of the whole plan
    crash: last words of the whole plan; empty if it did not crash
    results: results of the whole plan beside the reference; empty by time
    alone: results with only ``found`` fused; empty by time
    amplifies: whether the reference of a wrong result is itself far from a run in 64 bits: then
        rounding alone may make results wrong
    cost: seconds of a run, or of the compilation; null by numbers
    found: kernels that are needed to make the difference; empty if there is nothing to find
    """

    module: str
    by: By
    reference: str | None
    kernels: int
    problem: str = ""
    tried: int = 0
    failed: int = 0
    shows_in: int = 0
    runs: int = FIRST_RUNS
    crash: str = ""
    results: tuple[ResultDifference, ...] = ()
    alone: tuple[ResultDifference, ...] = ()
    amplifies: bool = False
    cost: Cost | None = None
    found: tuple[Culprit, ...] = ()
