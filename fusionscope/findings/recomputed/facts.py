"""Values that several kernels compute."""

from __future__ import annotations

from fusionscope.facts.facts import Facts
from fusionscope.facts.result import Operation

_NOTICEABLE = 0.01  # of a time: a smaller difference is within the error of an estimate


class RunCosts(Facts, frozen=True):
    """The cost of some kernels in one run of a module.

    launches: their launches
    bytes_moved: the bytes that they move
    time_ns: their estimated time; null if none is known
    """

    launches: int
    bytes_moved: int
    time_ns: float | None


class RecomputedValue(Facts, frozen=True, kw_only=True, rename={"is_written": "written"}):
    """A value that several kernels of the final module compute: the last of a chain that the same
    kernels compute.

    value: the instruction of the stage before fusion
    source: the user's line, as ``file:line``
    operations: opcodes of what each of these kernels computes for it, without constants and
        bitcasts
    kernels: the kernels that compute it
    launches: launches of these kernels in a run
    instructions: instructions that compute it before fusion: more than 1 if the program itself
        computes it again; 0 if a later pass inserted it
    flops_again: floating point operations of a run beyond those of computing it once
    bytes_again: bytes of a run that are read for it beyond those of computing it once
    time_again_ns: how much longer these kernels take in a run than if they read it; null if no time
        is known
    written_by: the kernel that would write it, or does; null for a launch of its own
    is_written: whether this kernel writes it already
    before: the kernels that change if it is kept, over all runs
    after: the kernels in their place if it is kept, including the one that writes it
    """

    value: Operation
    source: str | None
    operations: tuple[str, ...]
    kernels: tuple[str, ...]
    launches: int
    instructions: int
    flops_again: int
    bytes_again: int
    time_again_ns: float | None
    written_by: str | None
    is_written: bool
    before: RunCosts
    after: RunCosts

    @property
    def saved_ns(self) -> float | None:
        """Return the time that keeping the value saves; 0 if that is less than 1% of what these
        kernels take, None if unknown.
        """
        if self.before.time_ns is None or self.after.time_ns is None:
            return None
        saved = self.before.time_ns - self.after.time_ns
        return saved if saved >= _NOTICEABLE * self.before.time_ns else 0.0


class KeptValues(Facts, frozen=True):
    """The values that are best kept at once. They may be computed one from the other, so what each
    saves alone does not add up to this.

    values: how many values these are
    kernels: how many kernels compute them
    before: the kernels that change, over all runs
    after: the kernels in their place, with those that write the values
    """

    values: int
    kernels: int
    before: RunCosts
    after: RunCosts


class Recomputation(Facts, frozen=True, kw_only=True):
    """Values that several kernels compute.

    values: the values, sorted by the time that keeping them saves, the most first
    kept: those of the values that are best kept at once: one may be computed from another, so what
        each saves alone does not add up; null if none saves time
    free: further values that take no more to compute than to read: broadcasts, constants, scalars
    unpriced: further values that were not looked at: those that take least work (``--all``: none),
        and those whose kernels cannot be taken apart
    """

    finding = "recomputed"

    values: tuple[RecomputedValue, ...]
    kept: KeptValues | None
    free: int
    unpriced: int


class Fields(Facts, frozen=True):
    """
    recomputed: values that several kernels compute; null if no pair is duplicated
    """

    recomputed: Recomputation | None = None
