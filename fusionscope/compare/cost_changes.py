"""Where the launches, bytes and time of two modules differ, by line or scope of the program."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum

from fusionscope.facts.scopes import frame_text, origin_of, scope_of, short_file
from fusionscope.facts.source_lines import user_line
from fusionscope.facts.suggestions import Figures
from fusionscope.history.kernels import Kernel
from fusionscope.history.matching import PLACES, Matching
from fusionscope.hlo import SourceLocation

_NO_PLACE = "(inserted by the compiler)"
_NUMBER = re.compile(r"\d+")
_ENOUGH = 0.5  # of the launches of both sides must have a place


class PlaceKind(StrEnum):
    LINE = "line"
    SCOPE = "scope"


@dataclass(frozen=True, slots=True)
class PlaceChange:
    """The cost of a run of everything that comes from one line, or scope, of the program. A time is
    None if that of a kernel is unknown.

    place: the line with its function, such as ``model.py:17 attention``; ``model.py:17 → 19
        attention`` if it is another line in AFTER; or the scope
    before: the cost in BEFORE
    after: the cost in AFTER
    """

    place: str
    before: Figures
    after: Figures


@dataclass(frozen=True, slots=True)
class CostChanges:
    """The places whose cost differs, the largest change first: of the time if both sides have it,
    otherwise of the bytes.

    by: ``line`` or ``scope``: what the places are
    is_nominal: whether times are those of a nominal CPU
    places: the places, the largest change first: of the time, or of the bytes where no time is
        known
    """

    by: PlaceKind
    is_nominal: bool
    places: tuple[PlaceChange, ...]


@dataclass(frozen=True, slots=True)
class KernelCosts:
    """The figures of one side, by line (file and number) and by scope, and in total."""

    total: Figures
    lines: Mapping[str, Figures]
    scopes: Mapping[str, Figures]
    names: Mapping[str, str]  # of lines: what a person reads


def count_costs(kernels: Sequence[Kernel], times_ns: Sequence[float | None]) -> KernelCosts:
    """Return the costs of the kernels of a module. ``times_ns`` are those of one launch of each."""
    lines: dict[str, list[int]] = defaultdict(list)
    scopes: dict[str, list[int]] = defaultdict(list)
    names: dict[str, str] = {}
    for number, kernel in enumerate(kernels):
        origin = origin_of(kernel.instruction)
        place = user_line(origin.stack)
        line = _NO_PLACE
        if place is not None:
            line = _line(place)
            names.setdefault(line, frame_text(place))
        lines[line].append(number)
        scopes[_scope(origin.op_name)].append(number)

    def figures(numbers: Iterable[int]) -> Figures:
        timed = [(kernels[number], times_ns[number]) for number in numbers]
        shares = [kernel.runs * time for kernel, time in timed if time is not None]
        return Figures(
            sum(kernel.runs for kernel, _ in timed),
            sum(kernel.bytes_moved for kernel, _ in timed),
            fsum(shares) / 1_000 if len(shares) == len(timed) else None,
        )

    return KernelCosts(
        figures(range(len(kernels))),
        {line: figures(numbers) for line, numbers in lines.items()},
        {scope: figures(numbers) for scope, numbers in scopes.items()},
        names,
    )


def _line(place: SourceLocation) -> str:
    return f"{short_file(place.file)}:{place.line}"


def _scope(op_name: str | None) -> str:
    """Return the scope of an operation; the operation itself if it is in none. The layers of a
    model, which differ in numbers, are one scope.
    """
    if not op_name:
        return _NO_PLACE
    path = scope_of(op_name)
    return _NUMBER.sub("*", "/".join(path[:-1] or path))


def moved_lines(matching: Matching) -> dict[str, str]:
    """Return the lines of the first module that are other lines in the second: those that most of
    their operations come from. An edit of a file moves all lines below it.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    line_of: dict[Hashable, str | None] = {}
    for before, after in matching.after.items():
        if before.opcode in PLACES:
            continue
        ends = []
        for end in (before, after):
            stack = end.stack
            if stack not in line_of:
                place = user_line(stack)
                line_of[stack] = _line(place) if place is not None else None
            ends.append(line_of[stack])
        if ends[0] is not None and ends[1] is not None:
            counts[ends[0]][ends[1]] += 1
    moved: dict[str, str] = {}
    for line, lines in counts.items():
        (most, count), *_ = lines.most_common(1)
        if most != line and count > lines[line]:
            moved[line] = most
    return moved


def compare_costs(
    before: KernelCosts, after: KernelCosts, moved: Mapping[str, str], *, is_nominal: bool
) -> CostChanges | None:
    """Return the places whose cost differs; None if nothing does, or neither side says where its
    kernels come from. ``moved`` maps lines of the first side to what they are in the second.
    """
    by = next((kind for kind in PlaceKind if _has_places(before, after, kind)), None)
    if by is None:
        return None
    moves = moved if by is PlaceKind.LINE else {}
    sides = [side.lines if by is PlaceKind.LINE else side.scopes for side in (before, after)]
    sources: dict[str, list[str]] = {place: [] for place in sides[1]}
    for place in sides[0]:
        sources.setdefault(moves.get(place, place), []).append(place)
    is_timed = all(side.total.time_us is not None for side in (before, after))
    nothing = Figures(0, 0, 0.0 if is_timed else None)
    names = {**before.names, **after.names}
    places = [
        PlaceChange(
            _name(place if place in lines or not lines else lines[0], place, names),
            _sum([sides[0][line] for line in lines]) if lines else nothing,
            sides[1].get(place, nothing),
        )
        for place, lines in sources.items()
    ]
    changed = [place for place in places if place.before != place.after]
    changed.sort(key=lambda change: tuple(-size for size in _sizes(change, is_timed)))
    return CostChanges(by, is_nominal, tuple(changed)) if changed else None


def _has_places(before: KernelCosts, after: KernelCosts, kind: PlaceKind) -> bool:
    """Return whether most launches come from a known place. Those of one side may not: a pass can
    drop the metadata of all that it fuses.
    """
    none = Figures(0, 0)
    costs = [side.lines if kind is PlaceKind.LINE else side.scopes for side in (before, after)]
    unknown = sum(side.get(_NO_PLACE, none).launches for side in costs)
    return unknown < _ENOUGH * (before.total.launches + after.total.launches)


def _name(before_name: str, after_name: str, names: Mapping[str, str]) -> str:
    """Return ``model.py:17 attention``, or ``model.py:17 → 19 attention`` for a line that moved."""
    name = names.get(after_name, after_name)
    if before_name == after_name:
        return name
    before = names.get(before_name, before_name).partition(" ")[0]
    place, _, function = name.partition(" ")
    file, _, number = place.rpartition(":")
    if before.rpartition(":")[0] == file:
        place = number
    return f"{before} → {place} {function}".rstrip()


def _sum(rows: Sequence[Figures]) -> Figures:
    times = [row.time_us for row in rows if row.time_us is not None]
    return Figures(
        sum(row.launches for row in rows),
        sum(row.bytes_moved for row in rows),
        fsum(times) if len(times) == len(rows) else None,
    )


def _sizes(change: PlaceChange, is_timed: bool) -> Iterator[float]:
    """Yield the sizes of a change, the most important first."""
    before, after = change.before, change.after
    if is_timed:
        yield abs((after.time_us or 0.0) - (before.time_us or 0.0))
    yield abs(after.bytes_moved - before.bytes_moved)
    yield abs(after.launches - before.launches)
