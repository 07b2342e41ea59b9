"""The breakdown of launches, bytes and time in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.words.section import Column, Section, Table
from fusionscope.words.text import duration, or_dash, size

if TYPE_CHECKING:
    from fusionscope.facts.result import Branch, Breakdown, ModuleFacts

_SMALL = 0.005  # of the whole: smaller branches are counted, not listed

_Row = tuple[str, ...]


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the largest parts of the whole."""
    if module.breakdown is not None:
        yield _lines(module.breakdown, module.breakdown.lines)


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield those that launch something, if there is more than one launch."""
    breakdown = module.breakdown
    if module.summary.launches > 1 and breakdown is not None:
        yield _lines(breakdown, [part for part in breakdown.lines if part.launches])


def _lines(breakdown: Breakdown, parts: Sequence[Branch]) -> Section:
    rows = [(_name(part), *_figures(part, breakdown)) for part in parts]
    return _section("Where it goes", rows, breakdown)


def tree(breakdown: Breakdown, depth: int, top: int | None) -> Section:
    """Return all branches down to ``depth``, of each the ``top`` largest (None: all)."""
    return _section(f"By {breakdown.by}", list(_tree(breakdown, depth, top)), breakdown)


def _section(title: str, rows: Sequence[_Row], breakdown: Breakdown) -> Section:
    figures = (Column(figure, is_number=True) for figure in _titles(breakdown))
    columns = (Column(title, is_flexible=True), *figures)
    return Section(blocks=(Table(columns=columns, rows=tuple(rows), noun="part"),))


def _tree(breakdown: Breakdown, depth: int, top: int | None) -> Iterator[_Row]:
    pending: list[tuple[int, Branch | str]] = [(0, breakdown.tree)]
    while pending:
        level, branch = pending.pop()
        indent = "  " * (level - 1)
        if isinstance(branch, str):
            yield (f"{indent}{branch}", *[""] * len(_titles(breakdown)))
            continue
        if level:
            yield (f"{indent}{_name(branch)}", *_figures(branch, breakdown))
        if level == depth:
            continue
        children = _large_children(branch, breakdown, top)
        hidden = len(branch.children) - len(children)
        if hidden:
            pending.append((level + 1, f"… {hidden:,} more"))
        pending += ((level + 1, child) for child in reversed(children))


def _large_children(branch: Branch, breakdown: Breakdown, top: int | None) -> list[Branch]:
    least = _SMALL * breakdown.figure(breakdown.tree)
    refused = breakdown.tree.refused_bytes
    return [
        child
        for child in branch.children
        if top is None
        or breakdown.figure(child) >= least
        or child.refused_bytes >= _SMALL * refused > 0
    ][:top]


def _name(branch: Branch) -> str:
    return f"{branch.name}  x{branch.count:,}" if branch.count > 1 else branch.name


def _titles(breakdown: Breakdown) -> _Row:
    word = "measured" if breakdown.is_measured else "time"
    time: _Row = (word,) if breakdown.tree.time_us else ()
    if breakdown.tree.at_best_us is not None:
        time += ("at best",)
    refused = () if breakdown.by == "kind" else ("not fused",)
    return ("share", *time, "launches", "bytes", *refused)


def _figures(branch: Branch, breakdown: Breakdown) -> _Row:
    """Return the figures in the order of the titles; the share is that of the sort key."""
    total = breakdown.figure(breakdown.tree) or 1.0
    time: _Row = (or_dash(branch.time_us, duration),) if breakdown.tree.time_us else ()
    if breakdown.tree.at_best_us is not None:
        time += (or_dash(branch.at_best_us, duration),)
    refused = () if breakdown.by == "kind" else (or_dash(branch.refused_bytes, size),)
    return (
        f"{100 * breakdown.figure(branch) / total:.0f}%",
        *time,
        f"{branch.launches:,}" if branch.launches else "-",
        or_dash(branch.bytes_moved, size),
        *refused,
    )
