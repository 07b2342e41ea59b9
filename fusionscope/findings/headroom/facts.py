"""What limits a module, and the least time that it could take."""

from __future__ import annotations

from fusionscope.facts.bounds import Decides
from fusionscope.facts.facts import Facts
from fusionscope.facts.result import Limit


class LoopBound(Facts, frozen=True, kw_only=True):
    """A loop, and the least time of one kernel that does the same. Figures are those of a run of
    the module.

    name: the loop, as in ``loops[].name``
    time_us: estimated microseconds of all its kernels
    limited_by: what takes over half of them
    at_best_us: least microseconds of one kernel for all steps: what does not change is read once,
        and the state stays on the chip
    at_best_by_step_us: the same with one kernel for each step
    state_bytes: bytes of state that these kernels read and write for the next step
    """

    name: str
    time_us: float
    limited_by: Limit
    at_best_us: float
    at_best_by_step_us: float
    state_bytes: float


class Headroom(Facts, frozen=True, kw_only=True):
    """What limits a module by the model of its time, and the least that it could take.

    launches_us: microseconds that start kernels
    memory_us: microseconds in which kernels read and write
    compute_us: microseconds in which kernels compute, where that takes longer
    library_us: microseconds that calls of libraries take at least, without their launches
    unexplained_us: microseconds of kernels of a TPU of which neither bytes nor products explain
        half
    at_best_us: least microseconds of one kernel that does the same as all
    at_best_by_step_us: the same with one kernel for each step of a loop, and one for all outside of
        loops; null without loops
    at_best_bytes: bytes that the former reads and writes: parameters and results, each once, of
        each the part that is needed, at the width in which it is needed
    decided_by: what determines that time: ``launch``, ``bytes``, or ``operations`` (of products and
        convolutions, at the peak rate of their type)
    loops: the loops, those that could be faster by most first
    """

    finding = "headroom"

    launches_us: float
    memory_us: float
    compute_us: float
    library_us: float
    unexplained_us: float
    at_best_us: float
    at_best_by_step_us: float | None
    at_best_bytes: float
    decided_by: Decides
    loops: tuple[LoopBound, ...]


class Fields(Facts, frozen=True):
    """
    headroom: what limits the module, and the least time that it could take; null unless a
        GPU or TPU is known
    """

    headroom: Headroom | None = None
