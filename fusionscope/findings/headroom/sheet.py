"""What limits a module in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.facts.bounds import Decides
from fusionscope.facts.limits import Limits
from fusionscope.facts.result import Limit
from fusionscope.findings.headroom.facts import Headroom
from fusionscope.words.section import Block, Column, Section, Table, lines
from fusionscope.words.text import duration, or_dash, plural, size

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts

_BOUND = {
    Limit.LAUNCHES: "launch-bound",
    Limit.MEMORY: "memory-bound",
    Limit.COMPUTE: "compute-bound",
    Limit.LIBRARY: "library-bound",
}
_LEAST = 0.1  # share of the time: what takes less is not large
_DECIDED = {
    Decides.LAUNCH: "mostly its launch",
    Decides.BYTES: "to move {}",
    Decides.OPERATIONS: "to compute its products",
}


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield what limits the module, its bound, and the bounds of its loops."""
    headroom = module.find(Headroom)
    if headroom is not None:
        blocks: list[Block] = [lines(_texts(module, headroom))]
        if headroom.loops:
            blocks.append(_loops(headroom, top))
        yield Section(blocks=tuple(blocks))


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield the same without loops."""
    headroom = module.find(Headroom)
    if headroom is not None:
        yield Section(blocks=(lines(_texts(module, headroom)),))


def _texts(module: ModuleFacts, headroom: Headroom) -> Iterator[str]:
    limits = Limits(
        headroom.launches_us,
        headroom.memory_us,
        headroom.compute_us,
        headroom.library_us,
        headroom.unexplained_us,
    )
    launches = plural(module.summary.launches, "kernel")
    verbs = {
        Limit.LAUNCHES: f"starts {launches}",
        Limit.MEMORY: "reads and writes",
        Limit.COMPUTE: "computes",
        Limit.LIBRARY: "is in libraries",
        Limit.UNEXPLAINED: "is in kernels that neither bytes nor products explain",
    }
    shares = sorted(((limits.share(limit), verb) for limit, verb in verbs.items()), reverse=True)
    large = [pair for pair in shares if pair[0] >= _LEAST]
    words = ", ".join(
        f"{100 * share:.0f}% {'of the time ' if not place else ''}{verb}"
        for place, (share, verb) in enumerate(large)
    )
    bound = _BOUND.get(limits.limited_by)
    yield f"{bound}: {words}" if bound else words
    by_step = headroom.at_best_by_step_us
    steps = f", {duration(by_step)} with one for each step of its loops" if by_step else ""
    moved = size(round(headroom.at_best_bytes))
    decided = _DECIDED[headroom.decided_by].format(moved)
    yield f"at best {duration(headroom.at_best_us)} as one kernel ({decided}){steps}"


def _loops(headroom: Headroom, top: int | None) -> Table:
    rows = [
        (
            loop.name,
            duration(loop.time_us),
            duration(loop.at_best_by_step_us),
            duration(loop.at_best_us),
            or_dash(round(loop.state_bytes), size),
            loop.limited_by,
        )
        for loop in headroom.loops[:top]
    ]
    titles = ("time", "one kernel a step", "for all steps", "state", "limited by")
    return Table(
        columns=(
            Column("Loops at best", is_flexible=True),
            *(Column(title, is_number=True) for title in titles),
        ),
        rows=tuple(rows),
        noun="loop",
        hidden=len(headroom.loops) - len(rows),
    )
