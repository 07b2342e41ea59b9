"""Library boundaries in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.findings.libraries.facts import Boundary, Neighbour
from fusionscope.findings.movements.facts import Movement, MovementCause
from fusionscope.words.section import Entry, Line, Section, Tone, line, ranked, strong
from fusionscope.words.text import counted, plural, size

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts

_NORMALIZED = "layout_normalization"


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the library calls, those first across which fusion could save most."""
    boundaries = module.find_all(Boundary)
    if not boundaries:
        return
    moved = [m for m in module.find_all(Movement) if _is_for_layout(m)]
    entries = [_entry(rank, boundary, moved) for rank, boundary in enumerate(boundaries[:top], 1)]
    yield Section(
        title="Library boundaries: nothing is fused across these",
        blocks=(ranked("library call", entries, len(boundaries), ("saved at most", "alike")),),
    )


def _entry(rank: int, boundary: Boundary, moved: Sequence[Movement]) -> Entry:
    count = len(boundary.names)
    return Entry(
        label=f"{rank}.",
        name=strong(boundary.names[0]),
        figures=(
            f"{size(boundary.saved_at_most)} at most",
            f"x{count:,} alike" if count > 1 else "",
        ),
        lines=(*_details(boundary), *_layouts(boundary, moved)),
    )


def _details(boundary: Boundary) -> Iterator[Line]:
    yield line(_what(boundary), Tone.BAD)
    if boundary.window:
        yield line(boundary.window)
    shapes = f"{', '.join(boundary.operands)} -> {', '.join(boundary.results)}"
    yield line(shapes, Tone.QUIET, is_cut=True)
    yield line(f"at {boundary.source or 'source line unknown'}", is_cut=True)
    yield line(_bytes(boundary))
    if included := _included(boundary):
        yield line(f"includes {included}", Tone.GOOD)
    if boundary.left_out:
        yield line(f"left out: {_left_out(boundary)}", Tone.BAD)
    elif boundary.rule:
        yield line(f"not by YNN: {boundary.rule}: {boundary.why}", Tone.BAD)
    for title, neighbours in _neighbours(boundary):
        if neighbours:
            yield line(f"{title}: {neighbours}")


def _is_for_layout(movement: Movement) -> bool:
    """Return whether another layout made it necessary, also one that a later pass turned round."""
    return movement.cause is MovementCause.LAYOUT or movement.made_by == _NORMALIZED


def _layouts(boundary: Boundary, moved: Sequence[Movement]) -> Iterator[Line]:
    """Yield what the copies beside the call cost that another layout makes necessary; ``moved`` are
    known if the report shows movements.
    """
    beside = {neighbour.name for neighbour in (*boundary.before, *boundary.after)}
    copies = [movement for movement in moved if movement.kernel in beside]
    if copies:
        cost = size(sum(movement.bytes_moved for movement in copies))
        yield line(f"its layout costs {plural(len(copies), 'copy')}, {cost}", Tone.BAD)


def _what(boundary: Boundary) -> str:
    made_by = f", made by {boundary.made_by}" if boundary.made_by else ""
    return f"{boundary.library}: {boundary.computes}{made_by}"


def _bytes(boundary: Boundary) -> str:
    runs = f", {boundary.runs:,} times" if boundary.runs != 1 else ""
    scratch = f", works in {size(boundary.scratch)}" if boundary.scratch else ""
    return (
        f"reads {size(boundary.bytes_read)}, writes {size(boundary.bytes_written)}{scratch}{runs}"
    )


def _included(boundary: Boundary) -> str:
    sides = ((boundary.taken_before, "before"), (boundary.taken_after, "after"))
    return "; ".join(f"{counted(steps, ', ')} {side} it" for steps, side in sides if steps)


def _left_out(boundary: Boundary) -> str:
    why = ": ".join(filter(None, (boundary.rule, boundary.why)))
    why = f" ({why})" if why else ""
    return f"{', '.join(boundary.left_out)}{why}"


def _neighbours(boundary: Boundary) -> tuple[tuple[str, str], ...]:
    """Return the kernels before it, those after it, and those that exist only for library calls."""
    both = (*boundary.before, *boundary.after)
    return (
        ("before it", _listed(side for side in boundary.before if not side.serves)),
        ("after it", _listed(side for side in boundary.after if not side.serves)),
        ("rearranged for it", _listed(side for side in both if side.serves)),
    )


def _listed(neighbours: Iterable[Neighbour], most: int = 6) -> str:
    listed = [f"{_named(side)} {size(side.bytes_between)}" for side in neighbours]
    more = [f"{len(listed) - most:,} more"] if len(listed) > most else []
    return "; ".join(listed[:most] + more)


def _named(neighbour: Neighbour) -> str:
    if neighbour.operations == ("custom-call",):  # another call, without a kernel around it
        return neighbour.name
    return f"{counted(neighbour.operations, ', ')} in {neighbour.name}"
