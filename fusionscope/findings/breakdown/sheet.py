"""The breakdown of launches, bytes and time, on a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.words.text import cell, duration, or_dash, safe, size, squeeze

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.facts.result import Branch, Breakdown

_SMALL = 0.005  # of the whole: smaller branches are counted, not listed
_GAP = "  "
_LEAST = 16  # the least width of the first column

Row = Sequence[str]
"""A name and the figures beside it."""


def print_lines(breakdown: Breakdown, console: Console) -> None:
    """Print the largest parts of the whole."""
    rows = [(_name(line), *_figures(line, breakdown)) for line in breakdown.lines]
    print_rows(console, _head("Where it goes", breakdown), rows)


def print_tree(breakdown: Breakdown, console: Console, *, depth: int, top: int | None) -> None:
    """Print all branches down to ``depth``, of each the ``top`` largest (None: all)."""
    print_rows(console, _head(f"By {breakdown.by}", breakdown), list(_tree(breakdown, depth, top)))


def to_markdown(breakdown: Breakdown, *, depth: int, top: int | None) -> Iterator[str]:
    name, *titles = _head(f"by {breakdown.by}", breakdown)
    yield f"| {name} | {' | '.join(titles)} |"
    yield f"|---|{'--:|' * len(titles)}"
    for name, *figures in _tree(breakdown, depth, top):
        indent = "&nbsp;&nbsp;" * ((len(name) - len(name.lstrip())) // 2)
        yield f"| {indent}{cell(name.lstrip())} | {' | '.join(figures)} |"
    yield ""


def _tree(breakdown: Breakdown, depth: int, top: int | None) -> Iterator[Row]:
    total = breakdown.figure(breakdown.tree)
    pending: list[tuple[int, Branch | str]] = [(0, breakdown.tree)]
    while pending:
        level, branch = pending.pop()
        indent = "  " * (level - 1)
        if isinstance(branch, str):
            yield (f"{indent}{branch}", *[""] * (len(_head("", breakdown)) - 1))
            continue
        if level:
            yield (f"{indent}{_name(branch)}", *_figures(branch, breakdown))
        if level == depth:
            continue
        children = [
            child
            for child in branch.children
            if top is None
            or breakdown.figure(child) >= _SMALL * total
            or child.refused_bytes >= _SMALL * breakdown.tree.refused_bytes > 0
        ][:top]
        hidden = len(branch.children) - len(children)
        if hidden:
            pending.append((level + 1, f"… {hidden:,} more"))
        pending += ((level + 1, child) for child in reversed(children))


def _name(branch: Branch) -> str:
    return f"{branch.name}  x{branch.count:,}" if branch.count > 1 else branch.name


def _head(title: str, breakdown: Breakdown) -> Row:
    word = "measured" if breakdown.is_measured else "time"
    time = (word,) if breakdown.tree.time_us else ()
    refused = () if breakdown.by == "kind" else ("not fused",)
    return (title, "share", *time, "launches", "bytes", *refused)


def _figures(branch: Branch, breakdown: Breakdown) -> Row:
    """Return the figures in the order of the head; the share is that of the sort key."""
    total = breakdown.figure(breakdown.tree) or 1.0
    time = (or_dash(branch.time_us, duration),) if breakdown.tree.time_us else ()
    refused = () if breakdown.by == "kind" else (or_dash(branch.refused_bytes, size),)
    share = f"{100 * breakdown.figure(branch) / total:.0f}%"
    return (
        share,
        *time,
        f"{branch.launches:,}" if branch.launches else "-",
        or_dash(branch.bytes_moved, size),
        *refused,
    )


def print_rows(console: Console, head: Row, rows: Sequence[Row], indent: int = 2) -> None:
    """Print the figures in full; names get the remaining width."""
    from rich.text import Text

    places = range(1, len(head))
    widths = [max(len(row[place]) for row in (head, *rows)) for place in places]
    left = console.width - indent - sum(widths) - len(_GAP) * len(widths)
    width = max(_LEAST, min(left, max(len(row[0]) for row in (head, *rows))))
    for row in (head, *rows):
        name = safe(row[0])
        blank = len(name) - len(name.lstrip())
        name = f"{' ' * blank}{squeeze(name.lstrip(), width - blank)}".ljust(width)
        figures = _GAP.join(row[place].rjust(widths[place - 1]) for place in places)
        line = Text(f"{' ' * indent}{name}{_GAP}{figures}", no_wrap=True, overflow="ignore")
        if row is head:
            line.stylize("bold", indent, indent + len(row[0]))
            line.stylize("dim", indent + width)
        console.print(line)
