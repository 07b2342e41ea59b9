"""What could be faster."""

from __future__ import annotations

from enum import StrEnum

from fusionscope.facts.facts import Facts


class OpportunityKind(StrEnum):
    CONVERTED = "converted"  # parameters that stay the same, to a type
    SLICED = "sliced"  # parts of them, in a loop
    MOVED = "moved"  # to another place or order
    COMPUTED = "computed"  # from them alone
    INVARIANT = "loop-invariant"
    SHORT_STEPS = "short-steps"
    ONE_KERNEL = "one-kernel"


class Opportunity(Facts, frozen=True, kw_only=True):
    """What could be faster. Figures are those of a run; what several opportunities are about counts
    in each.

    id: ``converted``, ``sliced``, ``moved``, ``computed``: what is done in each call with
        parameters that stay the same from call to call; ``loop-invariant``: what a loop computes
        again in each step; ``short-steps``: a loop most of whose time starts kernels;
        ``one-kernel``: a part of the program, outside of loops
    where: the parameters, the loop, or the part
    source: the user's line, as ``file:line``
    time_us: estimated microseconds of it
    at_best_us: what is left of them at least
    bytes: bytes that need not be moved; of a loop of short steps, its state; of a part, those that
        it moves
    parameters: parameters that are taken to stay the same: they are not donated, no result has
        their shape, and neither does one of the same argument, which has several arrays
    advice: what to do
    """

    finding = "opportunities"

    id: OpportunityKind
    where: str
    source: str | None
    time_us: float
    at_best_us: float
    bytes: int
    parameters: tuple[str, ...]
    advice: str

    @property
    def gain_us(self) -> float:
        return self.time_us - self.at_best_us


class Fields(Facts, frozen=True):
    """
    opportunities: what could be faster, below, what gains most first
    """

    opportunities: tuple[Opportunity, ...] = ()
