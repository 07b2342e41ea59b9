"""Library boundaries as JSON, as Markdown, and on a terminal: a part of an explanation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fusionscope.words.text import cell, code, counted, print_hidden, safe, shorten, size

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.facts.result import Boundary, Neighbour

TITLE = "Library boundaries: nothing is fused across these"


def to_markdown(boundaries: tuple[Boundary, ...], top: int | None) -> Iterator[str]:
    """Yield the lines of a table."""
    if not boundaries:
        return
    yield f"{TITLE}.\n"
    yield (
        "| call | computes | calls | saved at most | includes | left out | before it | after it "
        "| rearranged for it |"
    )
    yield "|---|---|--:|--:|---|---|---|---|---|"
    for boundary in boundaries[:top]:
        columns = (
            f"{code(boundary.names[0])}",
            cell(_what(boundary)),
            f"{len(boundary.names):,}",
            size(boundary.saved_at_most),
            cell(_taken(boundary)),
            cell(_left_out(boundary)),
            *(cell(text) for _, text in _neighbours(boundary)),
        )
        yield f"| {' | '.join(columns)} |"
    yield ""


def print_boundaries(
    boundaries: tuple[Boundary, ...], console: Console, *, top: int | None
) -> None:
    """Print them to a terminal; ``top`` limits the list."""
    from rich.padding import Padding
    from rich.text import Text

    if not boundaries:
        return
    console.print(Text(f"\n  {TITLE}", style="bold"))
    for rank, boundary in enumerate(boundaries[:top], 1):
        alike = f"  x{len(boundary.names):,} alike" if len(boundary.names) > 1 else ""
        line = Text(f"  {rank}. ")
        line.append(safe(boundary.names[0]), style="bold")
        line.append(f"  {size(boundary.saved_at_most)} at most{alike}")
        console.print(line)
        for text, style in _details(boundary, console.width - 5):
            console.print(Padding(Text(safe(text), style=style), (0, 0, 0, 5)))
    print_hidden(console, 2, len(boundaries), top, "library call")


def _details(boundary: Boundary, width: int) -> Iterator[tuple[str, str]]:
    shapes = f"{', '.join(boundary.operands)} -> {', '.join(boundary.results)}"
    yield _what(boundary), "red"
    yield shorten(shapes, width), "dim"
    yield shorten(f"at {boundary.kernel.source or 'source line unknown'}", width), ""
    yield _bytes(boundary), ""
    if _taken(boundary):
        yield f"includes {_taken(boundary)}", "green"
    if boundary.left_out:
        yield f"left out: {_left_out(boundary)}", "red"
    for title, neighbours in _neighbours(boundary):
        if neighbours:
            yield f"{title}: {neighbours}", ""


def _what(boundary: Boundary) -> str:
    made_by = f", made by {boundary.made_by}" if boundary.made_by else ""
    return f"{boundary.library}: {boundary.computes}{made_by}"


def _bytes(boundary: Boundary) -> str:
    runs = f", {boundary.kernel.runs:,} times" if boundary.kernel.runs != 1 else ""
    scratch = f", works in {size(boundary.scratch)}" if boundary.scratch else ""
    return (
        f"reads {size(boundary.bytes_read)}, writes {size(boundary.bytes_written)}{scratch}{runs}"
    )


def _taken(boundary: Boundary) -> str:
    sides = ((boundary.taken_before, "before"), (boundary.taken_after, "after"))
    return "; ".join(f"{counted(taken, ', ')} {side} it" for taken, side in sides if taken)


def _left_out(boundary: Boundary) -> str:
    why = f" ({boundary.why})" if boundary.why else ""
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
