"""What could be faster."""

from __future__ import annotations

from enum import StrEnum

from fusionscope.facts.facts import Facts


class OpportunityKind(StrEnum):
    """What has no class of its own among ``patterns``."""

    CONVERTED = "converted"  # parameters that stay the same, to a type
    MOVED = "moved"  # to another place or order
    COMPUTED = "computed"  # from them alone
    INVARIANT = "loop-invariant"
    SHORT_STEPS = "short-steps"
    TWICE = "computed-twice"
    ONE_KERNEL = "one-kernel"


class Opportunity(Facts, frozen=True, kw_only=True):
    """What could be faster. Figures are those of a run; what several opportunities are about counts
    in each.

    id: the kind, of which docs/headroom.md has all: ``converted``, ``moved``, ``computed``: what is
        done in each call with parameters that stay the same from call to call; ``loop-invariant``:
        what a loop computes again in each step; ``short-steps``: a loop most of whose time starts
        kernels; ``computed-twice``: values that the forward pass and the gradient compute;
        ``one-kernel``: a part of the program, outside of loops; others are patterns of
        waste, such as ``recurrence``
    what: what the program does, in words, with ``where``
    where: the parameters, the loop, the part, or the kernels
    source: the user's line, as ``file:line``
    time_us: estimated microseconds of it
    at_best_us: what is left of them at least
    bytes: bytes that need not be moved; of a loop of short steps, its state; of a part, those that
        it moves
    parameters: parameters that are taken to stay the same: arrays of an argument that has several,
        none of which is donated or has the shape of a result; not one that is named like data, nor
        a batch, whose arrays all have the same first dimension
    advice: what to do
    """

    finding = "opportunities"

    id: str
    what: str
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
    opportunities: what could be faster, what gains most first
    """

    opportunities: tuple[Opportunity, ...] = ()
