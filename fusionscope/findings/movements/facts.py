"""Data movement in the final module."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fusionscope.facts.facts import Facts
from fusionscope.facts.result import Operation


class MovementCause(StrEnum):
    PROGRAM = "program"  # the program has it
    LAYOUT = "layout"  # its user needs the value in another layout
    TYPE = "type"  # the backend computes in another type
    LOOP = "loop"  # a loop updates the value in place
    UPDATE = "update"  # another operation updates the value in place
    RESULT = "result"  # a result needs a buffer of its own
    BUFFER = "buffer"  # the value would be overwritten while it is still read
    REWRITE = "rewrite"  # a pass replaced an operation by others
    NOT_IN_PLACE = "not-in-place"  # an update writes the whole array anew


class Movement(Facts, frozen=True, kw_only=True, rename={"is_alone": "alone", "made_by": "pass"}):
    """A copy, transpose, convert, reshape or update that moves data in the final module.

    operation: the instruction of the final module
    kernel: the kernel that computes it
    is_alone: whether this kernel only moves data; if not, the movement adds no launch
    runs: launches in a run, as in ``kernels[].runs``
    bytes_moved: its part of the bytes of a kernel that only moves data, over all runs; else 0
    time_ns: its part of the estimated time of such a kernel, over all runs; else 0; null if no time
        is known
    made_by: the pass that inserted it; null if the program has it
    stage: label of the first stage that has it
    cause: ``program``: the program has it; ``layout``: its user needs another layout; ``type``: the
        backend computes in another type; ``loop``, ``update``: a loop or another operation updates
        the value in place; ``result``: a result needs a buffer of its own; ``buffer``: it would be
        overwritten before its last read, or is a constant; ``rewrite``: the pass replaced an
        operation; ``not-in-place``: an update that writes the whole array
    text: the cause in a sentence
    served: the operation that it is for, in the stage that first has it
    source: the user's line of the nearest operation that has one, as ``file:line``
    """

    finding = "movements"

    operation: Operation
    kernel: str
    is_alone: bool
    runs: int
    bytes_moved: int
    time_ns: float | None
    made_by: str | None
    stage: str
    cause: MovementCause
    text: str
    served: Operation | None
    source: str | None


class Fields(Facts, frozen=True):
    """
    movements: data movement in the final module (``--show movements``), most bytes first; null if
        it was not requested
    """

    movements: tuple[Movement, ...] | None = None


@dataclass(frozen=True, slots=True)
class Movements:
    """The data movement in a final module, and one line on each stage that cannot be read."""

    found: tuple[Movement, ...]
    notes: tuple[str, ...]
