"""Values that several kernels compute, as Markdown and on a terminal: a part of an explanation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.words.text import cell, code, duration, plural, print_hidden, safe, size

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.facts.result import ModuleFacts, RecomputedValue

_TITLE = "Computed more than once"
_LEAST_SHARE = 0.01  # the smallest share of a module's bytes or time that is listed


def to_markdown(module: ModuleFacts, top: int | None) -> Iterator[str]:
    """Yield the lines of a table. ``top`` limits it; without, it is always shown."""
    groups = _groups(module, top)
    if not groups:
        return
    tried = dict(_kept(module))
    yield f"{_TITLE}: {_summary(module)}.\n"
    yield "| value | kernels | again | what helps | source |"
    yield "|---|--:|---|---|---|"
    for group in groups[:top]:
        value = group[0]
        columns = (
            f"{code(value.value.name)} {cell(value.value.shape)}{_alike(group)}",
            f"{len(value.kernels):,}",
            cell(_again(value)),
            _tries(numbers) if (numbers := tried.get(value.value.name)) else "",
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
    tried = dict(_kept(module))
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
            (_tries(numbers) if (numbers := tried.get(value.value.name)) else "", "cyan"),
        ):
            if text:
                console.print(Padding(Text(safe(text), style=style), (0, 0, 0, 5)))
    print_hidden(console, 2, len(groups), top, "value")


def print_summary(module: ModuleFacts, console: Console) -> None:
    """Print the cost of computing values again, if the replay without one of these fusions saves
    time.
    """
    from rich.padding import Padding
    from rich.text import Text

    kept = [each for each in _kept(module) if each[1]]
    if not _groups(module, 1) or not kept:
        return
    words = Text.assemble((_TITLE, "bold"), f": {_summary(module)}. ")
    value, numbers = kept[0]
    words.append(f"Keeping {safe(value)} saves time: {_tries(numbers)}", style="green")
    console.print(Padding(words, (1, 0, 0, 2)))


def _kept(module: ModuleFacts) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each value, with the numbers of the suggestions that keep it."""
    tried = module.suggestions
    for value in module.recomputed.values if module.recomputed is not None else ():
        yield value.value.name, tried.keeping(value.value.name) if tried is not None else ()


def _tries(numbers: tuple[int, ...]) -> str:
    return f"try {', '.join(map(str, numbers))}"


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
    if found.free:
        parts.append(f"{found.free:,} more cost nothing")
    return "; ".join(parts)


def _again(value: RecomputedValue) -> str:
    text = f"{value.flops_again:,} flops, {size(value.bytes_again)} read"
    if value.time_again_ns is not None:
        text += f", {duration(value.time_again_ns / 1_000)} longer than reading it"
    program = f"; the program computes it {value.instructions:,} times"
    return f"{text}{program if value.instructions > 1 else ''}"
