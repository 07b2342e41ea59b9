"""Values that several kernels compute, as Markdown and on a terminal: a part of an explanation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.report.text import cell, code, duration, plural, print_hidden, safe, size

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.explain.result import KeptValues, ModuleFacts, RecomputedValue

_TITLE = "Computed more than once"
_LEAST_SHARE = 0.01  # the smallest share of a module's bytes or time that is listed


def to_markdown(module: ModuleFacts, top: int | None) -> Iterator[str]:
    """Yield the lines of a table. ``top`` limits it; without, it is always shown."""
    groups = _groups(module, top)
    if not groups:
        return
    yield f"{_TITLE}: {_summary(module)}.\n"
    yield "| value | kernels | again | if kept | source |"
    yield "|---|--:|---|---|---|"
    for group in groups[:top]:
        value = group[0]
        columns = (
            f"{code(value.value.name)} {cell(value.value.shape)}{_alike(group)}",
            f"{len(value.kernels):,}",
            cell(_again(value)),
            cell(f"{_change(value)}: {_writer(value)}"),
            cell(value.value.source or ""),
        )
        yield f"| {' | '.join(columns)} |"
    yield ""


def print_recomputed(module: ModuleFacts, console: Console, *, top: int | None) -> None:
    """Print them to a terminal; ``top`` as in ``to_markdown``."""
    from rich.padding import Padding
    from rich.text import Text

    groups = _groups(module, top)
    if not groups:
        return
    console.print(Padding(Text(f"{_TITLE}: {_summary(module)}", style="bold"), (1, 0, 0, 2)))
    for rank, group in enumerate(groups[:top], 1):
        value = group[0]
        line = Text(f"  {rank}. ")
        line.append(safe(value.value.name), style="bold")
        line.append(f"  in {len(value.kernels):,} kernels{_alike(group)}")
        console.print(line)
        place = f" at {value.value.source}" if value.value.source else ""
        for text, style in (
            (f"{value.value.opcode} {value.value.shape}{place}", "dim"),
            (f"again: {_again(value)}", ""),
            (f"kept:  {_change(value)}, {_writer(value)}", "green" if value.saved_ns else ""),
        ):
            console.print(Padding(Text(safe(text), style=style), (0, 0, 0, 5)))
    print_hidden(console, 2, len(groups), top, "value")


def print_summary(module: ModuleFacts, console: Console) -> None:
    """Print the cost of computing values again, if keeping one of them saves time, and the value
    that saves most.
    """
    from rich.padding import Padding
    from rich.text import Text

    groups = _groups(module, 1)
    if not groups or not groups[0][0].saved_ns:
        return
    value = groups[0][0]
    words = Text.assemble((_TITLE, "bold"), f": {_summary(module)}. Keeping ")
    where = f"in {len(value.kernels):,} kernels{_alike(groups[0])}"
    words.append(f"{safe(value.value.name)} ({where}) ")
    words.append(f"alone saves most: {_change(value)}", style="green")
    words.append(f" (try --forbid '{safe(value.value.name)} -> *')")
    console.print(Padding(words, (1, 0, 0, 2)))


def _groups(module: ModuleFacts, top: int | None) -> list[list[RecomputedValue]]:
    """Return groups of values that look alike (the layers of a model); none if ``top`` limits lists
    and all of them cost too little.
    """
    if module.recomputed is None or (top is not None and _largest_share(module) < _LEAST_SHARE):
        return []
    alike: dict[tuple[object, ...], list[RecomputedValue]] = defaultdict(list)
    for each in module.recomputed.values:
        value = each.value
        key = value.opcode, value.shape, value.source, len(each.kernels), each.operations
        alike[key].append(each)
    return list(alike.values())


def _alike(group: list[RecomputedValue]) -> str:
    return f", x{len(group):,} alike" if len(group) > 1 else ""


def _largest_share(module: ModuleFacts) -> float:
    """Return the largest share of a module's bytes or time that one value costs."""
    if module.recomputed is None:
        return 0.0
    totals = module.totals
    time = 1_000 * totals.time.microseconds if totals.time is not None else 0.0
    return max(
        (
            max(
                each.bytes_again / (totals.bytes_moved or 1),
                (each.time_again_ns or 0) / (time or 1),
            )
            for each in module.recomputed.values
        ),
        default=0.0,
    )


def _summary(module: ModuleFacts) -> str:
    found = module.recomputed
    assert found is not None
    kernels = {kernel for each in found.values for kernel in each.kernels}
    parts = [f"{plural(len(found.values), 'value')} in {plural(len(kernels), 'kernel')}"]
    if found.kept is None and all(each.saved_ns is not None for each in found.values):
        which = "it" if len(found.values) == 1 else "any of them"
        parts.append(f"keeping {which} would not save time")
    elif found.kept is not None and found.kept.values > 1:
        which = "all" if found.kept.values == len(found.values) else f"{found.kept.values:,}"
        saved = _change(found.kept, _share(found.kept, module))
        parts.append(f"keeping {which} of them: {saved}")
    if found.free:
        parts.append(f"{found.free:,} more cost nothing")
    return "; ".join(parts)


def _share(kept: KeptValues, module: ModuleFacts) -> str:
    """Return which share of a module's time keeping values saves, in words."""
    time, before, after = module.totals.time, kept.before.time_ns, kept.after.time_ns
    if time is None or not time.microseconds or before is None or after is None:
        return ""
    return f" ({(before - after) / (1_000 * time.microseconds):.0%} of the time)"


def _again(value: RecomputedValue) -> str:
    text = f"{value.flops_again:,} flops, {size(value.bytes_again)} read"
    if value.time_again_ns is not None:
        text += f", {duration(value.time_again_ns / 1_000)} longer than reading it"
    program = f"; the program computes it {value.instructions:,} times"
    return f"{text}{program if value.instructions > 1 else ''}"


def _change(kept: RecomputedValue | KeptValues, share: str = "") -> str:
    before, after = kept.before, kept.after
    changes: list[str] = []
    if before.time_ns is not None and after.time_ns is not None:
        time = after.time_ns - before.time_ns
        changes.append(f"{_sign(time)}{duration(abs(time) / 1_000)}{share}")
    moved = after.bytes_moved - before.bytes_moved
    changes.append(f"{_sign(moved)}{size(abs(moved))}")
    launches = after.launches - before.launches
    if launches:
        changes.append(f"{_sign(launches)}{plural(abs(launches), 'launch')}")
    return ", ".join(changes)


def _sign(change: float) -> str:
    return "-" if change < 0 else "+"


def _writer(value: RecomputedValue) -> str:
    if value.written_by is None:
        return "written by a launch of its own"
    return f"{value.written_by} {'writes it already' if value.is_written else 'writes it too'}"
