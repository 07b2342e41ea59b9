"""The walk over the releases between two: the first that behaves like the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import Facts
from fusionscope.passes.overrides import PairPattern
from fusionscope.progress import Progress
from fusionscope.upgrade.environments import releases_between
from fusionscope.upgrade.figures import Figure, Side, Verdict, is_fused, judge
from fusionscope.upgrade.measured import measure
from fusionscope.upgrade.place import Where, compare_dumps
from fusionscope.upgrade.trial import Trial, halfway, with_less_time


class Boundary(Facts, frozen=True, kw_only=True):
    """Two releases next to each other, between which a figure or the outcome of a pair changed.

    by: what was followed: a figure, or a pair
    last_before: the last release that is like the first; it is the one to pin
    first_after: the first release that is like the last
    sides: every release that was compiled, in their order
    skipped: what could not be compiled, and why
    """

    by: str
    last_before: str
    first_after: str
    sides: tuple[Side, ...]
    skipped: tuple[str, ...]

    @property
    def neighbours(self) -> tuple[Side, Side]:
        """The program with ``last_before`` and with ``first_after``."""
        return next(
            pair
            for pair in pairwise(self.sides)
            if tuple(side.jaxlib for side in pair) == (self.last_before, self.first_after)
        )


def walk(
    trial: Trial,
    ends: tuple[Side, Side],
    by: Figure | PairPattern | Where,
    progress: Progress,
) -> Boundary | None:
    """Return since when the program is as with the last release; None if nothing differs."""
    if by is Where.NOWHERE:
        return None
    if isinstance(by, Figure) and judge(by, *ends) is Verdict.SAME:
        raise UnusableInput(f"{by.replace('-', ' ')} is the same with both releases")
    first, last = (end.jaxlib for end in ends)
    beside: dict[str, tuple[Side, Side]] = {}  # the ends, measured in turns with a release
    fused = [is_fused(end, by) for end in ends] if isinstance(by, PairPattern) else []
    if fused and fused[0] == fused[1]:
        words = {None: "not there", True: "fused", False: "not fused"}[fused[0]]
        raise UnusableInput(f"{by} is {words} with both releases")

    def is_after(side: Side) -> bool:
        if isinstance(by, PairPattern):
            return is_fused(side, by) != fused[0]
        if isinstance(by, Where):
            _, where, code = compare_dumps(ends[0], side, progress)
            return bool(code) if by is Where.BELOW else where is not Where.NOWHERE
        old, new, value = (end.figure(by) for end in (*beside.get(side.jaxlib, ends), side))
        if old is None or new is None or value is None:
            raise UnusableInput(f"the dump of {side.jaxlib} does not show {by}")
        if by is Figure.COMPILE_TIME:
            return (value >= halfway(old, new)) == (new > old)
        return abs(value - new) < abs(value - old)

    def compile_with(release: str) -> Side:
        progress(f"compiling with {release}")
        if by is Figure.COMPILE_TIME:
            short = with_less_time(trial, ends)
            side = short.compile(release, release)
            return (
                side if side.problem else side.at_least(short.compile(release, f"{release}-again"))
            )
        side = trial.compile(release, release)
        if trial.runs and by in (Figure.FAILURES, Figure.MEASURED_TIME) and not side.problem:
            progress(f"measuring with {release}")
            before, side, after = measure(trial, (ends[0], side, ends[1]))
            beside[side.jaxlib] = before, after
        if by is not Figure.FAILURES and (side.failures or 0) > max(
            end.failures or 0 for end in ends
        ):
            raise UnusableInput(side.problem or side.run_problem)
        return side

    words = "the code of kernels" if by is Where.BELOW else "HLO"
    releases = releases_between(first, last, (end.python for end in ends))
    return find_boundary(
        words if isinstance(by, Where) else str(by), ends, releases, compile_with, is_after
    )


def find_boundary(
    by: str,
    ends: tuple[Side, Side],
    releases: Sequence[str],
    compile_with: Callable[[str], Side],
    is_after: Callable[[Side], bool],
) -> Boundary:
    """Halve ``releases``, those between the ``ends`` in their order, until two neighbours are left
    of which only the second ``is_after``. What cannot be compiled is left out.
    """
    left = list(releases)
    before, after = ends
    sides, skipped = list(ends), []
    while left:
        middle = len(left) // 2
        try:
            side = compile_with(left[middle])
            is_late = is_after(side)
        except UnusableInput as error:
            skipped.append(f"{left.pop(middle)}: {error}")
            continue
        sides.append(side)
        if is_late:
            after, left = side, left[:middle]
        else:
            before, left = side, left[middle + 1 :]
    order = [ends[0].jaxlib, *releases, ends[1].jaxlib]
    return Boundary(
        by=by,
        last_before=before.jaxlib,
        first_after=after.jaxlib,
        sides=tuple(sorted(sides, key=lambda side: order.index(side.jaxlib))),
        skipped=tuple(skipped),
    )
