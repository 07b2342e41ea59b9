"""What kernels take of a GPU, and what could be changed so that they spill less."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.facts.facts import Facts
from fusionscope.facts.result import KernelResources

ABOUT = "registers and spills"  # how notes on resources begin


class SpillCost(Facts, frozen=True, kw_only=True):
    """What a run of a module costs, with its spills.

    launches: launches
    bytes_moved: bytes that the kernels read and write, without spills
    time_us: the estimated time in microseconds, which does not count spills
    spilling: how many kernels spill
    spill_bytes: bytes that all threads store and load again in a run
    spill_us: what these take at the bandwidth of the GPU, in microseconds
    """

    launches: int
    bytes_moved: int
    time_us: float | None
    spilling: int
    spill_bytes: int
    spill_us: float | None

    @property
    def total_us(self) -> float | None:
        """Return the estimated time with spills, None if it is unknown."""
        if self.time_us is None or self.spill_us is None:
            return None
        return self.time_us + self.spill_us

    def is_better_than(self, other: SpillCost) -> bool:
        """Return whether fewer bytes are spilled, and no time is lost by that."""
        if self.spill_bytes >= other.spill_bytes:
            return False
        if self.total_us is None or other.total_us is None:
            return True
        return self.total_us < other.total_us


class SpillTrial(Facts, frozen=True):
    """A change that was compiled, and what came of it.

    change: the options of ``rerun`` that make the change
    after: the costs with the change, as ``before``; null if there is no result
    problem: why there is no result; empty if there is one
    """

    change: str
    after: SpillCost | None
    problem: str = ""


class OverFused(Facts, frozen=True):
    """The fusions that spill, and the changes that were compiled so that they spill less.

    kernels: these fusions
    before: what a run of the module costs as it is
    tried: the changes that were compiled, in this order
    best: the change with the least time, spills included; null if none helps
    """

    finding = "over_fused"

    kernels: tuple[str, ...]
    before: SpillCost
    tried: tuple[SpillTrial, ...]
    best: str | None


def over_fused(
    kernels: tuple[str, ...], before: SpillCost, tried: tuple[SpillTrial, ...]
) -> OverFused:
    """Return what was tried on the fusions that spill. The best change takes the least time of
    those that help.
    """
    best: str | None = None
    least = before
    for trial in tried:
        after = trial.after
        if after is None or not after.is_better_than(before):
            continue
        if best is None or (after.total_us or 0.0) < (least.total_us or 0.0):
            best, least = trial.change, after
    return OverFused(kernels, before, tried, best)


class Fields(Facts, frozen=True):
    """
    over_fused: fusions for an NVIDIA GPU that spill, and what was compiled so that they spill less
        (``--show resources --compile``); null if none spills or nothing was compiled
    """

    over_fused: OverFused | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """What the kernels of a module take, by the names of their instructions in the final module;
    ``notes`` are on what is unknown. ``over_fused`` is None if no change was tried.
    """

    found: dict[str, KernelResources]
    notes: tuple[str, ...]
    over_fused: OverFused | None = None
