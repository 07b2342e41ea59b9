"""Breaks launches, bytes and time down into a tree of the kernels of a final module."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import takewhile
from math import fsum

from fusionscope.facts.bounds import Bounds
from fusionscope.facts.limits import sum_of_limits
from fusionscope.facts.module_analysis import Analysis
from fusionscope.facts.result import Branch, Breakdown, Grouping, KernelFacts, SortedBy
from fusionscope.facts.scopes import frame_text, outermost_first, scope_of, short_file

_INSERTED = "(inserted by the compiler)"
_NO_LINE = "(without a line)"
_NO_SCOPE = "(in no scope)"
_NUMBER = re.compile(r"\d+")
_UNNAMED = re.compile(r"while\b|cond\b|branch_|_|\(|[^/]*[,>]|gradient(/|$)")
_BETWEEN = {
    Grouping.SCOPE: "/",
    Grouping.STACK: " > ",
    Grouping.FILE: ":",
    Grouping.KIND: " ",
}
_LINES = 5  # in a short list
_LARGE = 1 / 3  # of the whole: a short list splits a line that holds more


@dataclass(frozen=True, slots=True)
class _Row:
    """The contribution of one kernel, or one refused pair, to each branch on its path."""

    path: tuple[str, ...]
    kernel: int | None = None
    launches: int = 0
    bytes_moved: int = 0
    time_us: float = 0.0
    refused_bytes: int = 0
    spill_bytes: int | None = None


@dataclass(slots=True)
class _Node:
    name: str
    count: int
    rows: list[_Row]
    depth: int
    children: list[_Node] = field(default_factory=list)


def break_down(
    analysis: Analysis,
    kernels: Sequence[int],
    pairs: Sequence[int],
    by: Grouping | None,
    sorted_by: SortedBy | None,
) -> Breakdown:
    """Return the tree, with children in the order of ``sorted_by``; None sorts by time if it is
    known, and by bytes otherwise. ``by`` None selects the scope, or the call stack if most is in no
    scope that somebody named.

    ``kernels`` and ``pairs`` are the numbers of those to count. The bytes of a refused pair count
    where its producer comes from.
    """
    if sorted_by is None:
        is_timed = any(analysis.facts.kernels[kernel].time_ns is not None for kernel in kernels)
        sorted_by = SortedBy.TIME if is_timed else SortedBy.BYTES
    rows = partial(_rows, analysis, kernels, pairs)
    bounds = analysis.bounds
    tree = _tree(rows(by or Grouping.SCOPE), sorted_by, by or Grouping.SCOPE, bounds)
    if by is None and not _has_scopes(tree, sorted_by):
        stacks = _tree(rows(Grouping.STACK), sorted_by, Grouping.STACK, bounds)
        if len(_summarize(stacks, Grouping.STACK, sorted_by, bounds)) > 1:
            by, tree = Grouping.STACK, stacks
    by = by or Grouping.SCOPE
    lines = _summarize(tree, by, sorted_by, bounds)
    return Breakdown(by, sorted_by, _is_measured(analysis), tree, lines)


def _is_measured(analysis: Analysis) -> bool:
    return any(kernel.measured_us is not None for kernel in analysis.facts.kernels)


def _has_scopes(tree: Branch, sorted_by: SortedBy) -> bool:
    """Return whether half of all is in a scope that somebody named. Loops, the parts of an einsum
    and private functions of JAX do not count.
    """
    time_in_scopes = fsum(
        child.figure(sorted_by)
        for child in tree.children
        if (child.children or "/" in child.name) and not _UNNAMED.match(child.name)
    )
    return 2 * time_in_scopes >= tree.figure(sorted_by)


def _rows(
    analysis: Analysis, kernels: Iterable[int], pairs: Iterable[int], by: Grouping
) -> list[_Row]:
    path_of = cache(partial(_path, analysis, by))  # much comes from one origin
    is_measured = _is_measured(analysis)
    rows = []
    for number in kernels:
        facts = analysis.facts.kernels[number]
        path = _kind(facts) if by is Grouping.KIND else path_of(analysis.kernels[number].origin)
        rows.append(
            _Row(
                path,
                number,
                launches=facts.launches,
                bytes_moved=facts.bytes_moved,
                time_us=(facts.measured_us or 0.0) if is_measured else facts.time_us,
                spill_bytes=facts.spill_bytes,
            )
        )
    if by is Grouping.KIND:
        return rows
    for number in pairs:
        pair = analysis.facts.pairs[number]
        if pair.reason is not None:
            path = path_of(analysis.pairs[number].origin)
            rows.append(_Row(path, refused_bytes=pair.bytes_saved))
    if by is Grouping.STACK:
        return _without_common_frames(rows)
    return _with_scopes(rows) if by is Grouping.SCOPE else rows


def _with_scopes(rows: Sequence[_Row]) -> list[_Row]:
    """Return the paths with one scope for all operations that are in none, if others are in one."""
    if all(len(row.path) == 1 for row in rows):
        return list(rows)
    return [
        replace(row, path=(_NO_SCOPE, *row.path))
        if len(row.path) == 1 and row.path != (_INSERTED,)
        else row
        for row in rows
    ]


def _without_common_frames(rows: Sequence[_Row]) -> list[_Row]:
    """Return the stacks without the outer frames that all share, which only call the program."""
    stacks = [row.path for row in rows if row.path[0] not in (_INSERTED, _NO_LINE)]
    if not stacks:
        return list(rows)
    first, last = min(stacks), max(stacks)  # every other stack shares what these two share
    both = zip(first, last, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
    return [
        row
        if row.path[0] in (_INSERTED, _NO_LINE)
        else replace(row, path=row.path[max(common - 1, 0) :])
        for row in rows
    ]


def _kind(facts: KernelFacts) -> tuple[str, ...]:
    return (str(facts.kind), facts.emitter) if facts.emitter else (str(facts.kind),)


def _path(analysis: Analysis, by: Grouping, number: int) -> tuple[str, ...]:
    """Return the path of the origin with this number."""
    origin = analysis.origins[number]
    scope = scope_of(origin.op_name) if origin.op_name else ()
    if by is Grouping.SCOPE:
        return scope or (_INSERTED,)
    frames = outermost_first(analysis.stack(origin.stack))
    if not frames:
        return (_NO_LINE, scope[-1]) if scope else (_INSERTED,)
    if by is Grouping.STACK:
        return tuple(frame_text(frame) for frame in frames)
    innermost = frames[-1]
    return short_file(innermost.file), frame_text(innermost).partition(":")[2]


def _tree(rows: Sequence[_Row], sorted_by: SortedBy, by: Grouping, bounds: Bounds | None) -> Branch:
    root = _Node("", 1, list(rows), 0)
    nodes = [root]
    for node in nodes:  # grows on the way
        node.children = list(_children(node, folds=by is Grouping.SCOPE))
        nodes += node.children
    branches: dict[int, Branch] = {}
    for node in reversed(nodes):
        children = [branches.pop(id(child)) for child in node.children]
        children.sort(key=lambda child: _key(child, sorted_by))
        branch = Branch(
            name=node.name,
            count=node.count,
            launches=sum(row.launches for row in node.rows),
            bytes_moved=sum(row.bytes_moved for row in node.rows),
            time_us=fsum(row.time_us for row in node.rows),
            refused_bytes=sum(row.refused_bytes for row in node.rows),
            spill_bytes=_sum_of_known(row.spill_bytes for row in node.rows),
            kernels=tuple(row.kernel for row in node.rows if row.kernel is not None),
            children=tuple(children),
        )
        branch = _bounded(branch, bounds)
        ends_here = any(len(row.path) == node.depth for row in node.rows)
        if len(children) == 1 and not ends_here and node is not root:
            branch = _with_prefix(children[0], branch, _BETWEEN[by])
        branches[id(node)] = branch
    return branches[id(root)]


def _children(node: _Node, *, folds: bool) -> Iterator[_Node]:
    """Yield a branch for each next part of the paths. With ``folds``, parts that differ only in
    numbers, such as the layers of a model, share a branch.
    """
    groups: dict[str, dict[str, list[_Row]]] = defaultdict(lambda: defaultdict(list))
    for row in node.rows:
        if len(row.path) > node.depth:
            part = row.path[node.depth]
            groups[_NUMBER.sub("*", part) if folds else part][part].append(row)
    for pattern, names in groups.items():
        name = pattern if len(names) > 1 else next(iter(names))
        rows = [row for rows_of_name in names.values() for row in rows_of_name]
        yield _Node(name, len(names), rows, node.depth + 1)


def _key(branch: Branch, sorted_by: SortedBy) -> tuple[float, ...]:
    return tuple(-figure for figure in (branch.figure(sorted_by), branch.refused_bytes))


def _with_prefix(branch: Branch, above: Branch, between: str) -> Branch:
    """Return a branch with the name of its parent in front of its own."""
    name = f"{above.name}{between}{branch.name}"
    return replace(branch, name=name, count=above.count * branch.count)


def _bounded(branch: Branch, bounds: Bounds | None) -> Branch:
    """Return a branch with the least time of its kernels, and what limits them."""
    if bounds is None:
        return branch
    limits = sum_of_limits(bounds.limits[kernel] for kernel in branch.kernels)
    return replace(
        branch,
        at_best_us=bounds.at_best(branch.kernels).time_us,
        limited_by=limits.limited_by if limits is not None else None,
    )


def _summarize(
    root: Branch, by: Grouping, sorted_by: SortedBy, bounds: Bounds | None
) -> tuple[Branch, ...]:
    """Return a limited number of branches that together are the whole: the largest parts, each
    split until none holds most of it, and one for all others.
    """
    total = root.figure(sorted_by) or 1.0
    lines = list(root.children)
    while True:
        large = [
            line
            for line in lines
            if line.figure(sorted_by) > _LARGE * total
            and line.children
            and (by is not Grouping.SCOPE or any(child.children for child in line.children))
        ]
        if not large:
            break
        (whole, *_) = large
        parts = whole.children
        names = Counter(line.name for line in (*lines, *parts))
        parts = tuple(
            part
            if by is Grouping.STACK and names[part.name] == 1  # a frame names itself
            else _with_prefix(part, whole, _BETWEEN[by])
            for part in parts
        )
        place = lines.index(whole)
        lines[place : place + 1] = [*parts, *_own(whole, bounds)]
    lines.sort(key=lambda line: _key(line, sorted_by))
    if len(lines) <= _LINES:
        return tuple(lines)
    later_lines = lines[_LINES - 1 :]
    joined = _joined(f"{len(later_lines):,} others", later_lines)
    last = replace(_bounded(joined, bounds), is_rest=True)
    return (*lines[: _LINES - 1], last)


def _own(branch: Branch, bounds: Bounds | None) -> Iterator[Branch]:
    """Yield the part of a branch that is in none of its children, if there is any."""
    parts = _joined("", branch.children)
    own_row = replace(
        branch,
        launches=branch.launches - parts.launches,
        bytes_moved=branch.bytes_moved - parts.bytes_moved,
        time_us=max(branch.time_us - parts.time_us, 0.0),
        refused_bytes=branch.refused_bytes - parts.refused_bytes,
        spill_bytes=(
            None if branch.spill_bytes is None else branch.spill_bytes - (parts.spill_bytes or 0)
        ),
        kernels=tuple(sorted({*branch.kernels}.difference(parts.kernels))),
        children=(),
    )
    if own_row.launches or own_row.refused_bytes:
        yield _bounded(own_row, bounds)


def _joined(name: str, branches: Sequence[Branch]) -> Branch:
    return Branch(
        name=name,
        count=1,
        launches=sum(branch.launches for branch in branches),
        bytes_moved=sum(branch.bytes_moved for branch in branches),
        time_us=fsum(branch.time_us for branch in branches),
        refused_bytes=sum(branch.refused_bytes for branch in branches),
        spill_bytes=_sum_of_known(branch.spill_bytes for branch in branches),
        kernels=tuple(kernel for branch in branches for kernel in branch.kernels),
        children=(),
    )


def _sum_of_known(values: Iterable[int | None]) -> int | None:
    """Return the sum of those that are not None, None if all are."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
