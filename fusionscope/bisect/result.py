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
    """An operation in a kernel, by its name before fusion if it has one. ``source`` is the line of
    the program, None if it is unknown.
    """

    name: str
    opcode: str
    shape: str
    source: str | None


class FusedPair(Facts, frozen=True):
    """``producer`` in one kernel with ``consumer``, which reads it unless they ``are_siblings``."""

    producer: str
    consumer: str
    are_siblings: bool


class Culprit(Facts, frozen=True, kw_only=True):
    """``pairs`` and ``operations`` that must be in one kernel to make the difference, inside of
    ``kernel``, which has ``of`` operations besides constants. There are no pairs if the kernel is
    not divided. ``reproducer`` runs them alone, None if none was asked for.
    """

    kernel: str
    of: int
    pairs: tuple[FusedPair, ...]
    operations: tuple[Operation, ...]
    reproducer: Reproducer | None = None


class Cost(Facts, frozen=True):
    """Seconds of a run, or of the compilation: of the ``whole`` plan, ``without`` what was found,
    and ``unfused``.
    """

    whole_s: float
    without_s: float
    unfused_s: float


class Bisection(Facts, frozen=True, kw_only=True, tag_field="schema", tag="fusionscope.bisect/1"):
    """The result. ``found`` is empty if there is nothing to find; ``problem`` then says why.

    ``kernels`` is the number of kernels of the plan, ``tried`` that of the parts of it that were
    compiled, ``failed`` that of those that could not be, or crashed. ``shows_in`` is in how many of
    ``runs`` runs the whole plan is wrong. ``crash`` is its last words if it crashes. ``results``
    are those of the whole plan against the reference, ``alone`` those with only ``found`` fused.
    ``cost`` is None if numbers are compared. ``amplifies`` is whether the reference of a wrong
    result is itself far from a run in 64 bits: then rounding alone may make results wrong.
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
