"""The walk over the releases between two: the first that behaves like the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import Facts
from fusionscope.upgrade.figures import Side


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
