"""The memory of a module: the peak, what it is made of, and how it gets lower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from fusionscope.words.text import (
    cell,
    code,
    file_and_line,
    plural,
    print_hidden,
    safe,
    shorten,
    size,
    squeeze,
)

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.facts.result import ModuleFacts
    from fusionscope.findings.memory.facts import (
        CallMemory,
        Donation,
        LiveBuffer,
        MemoryFacts,
        MemorySaving,
    )

_UNKNOWN = "unknown: the dump has no usable file about it"
_BUFFERS = 2  # on the first screen
_HEIGHT = 8  # lines of a plot
_NAMED = 3  # donations that one line names


def print_summary(module: ModuleFacts, console: Console) -> None:
    """Print at most six lines: totals, the largest values at the peak, what would lower it."""
    from rich.text import Text

    memory = module.memory
    if memory is None:
        console.print(Text.assemble(("\n  Memory", "bold"), (f"  {_UNKNOWN}", "dim")))
        return
    _print_totals(memory, console)
    _print_buffers(_shown(memory)[:_BUFFERS], console)
    width = console.width - 2
    for call in memory.inside_calls[:1]:
        console.print(Text(f"  {shorten(_inside(call), width)}"))
    for saving in memory.savings[:1]:
        console.print(Text(f"  {shorten(_saving(saving, width), width)}", style="cyan"))
    for words in _donated(memory, named=False):
        console.print(Text(f"  {shorten(words, width)}"))


def print_memory(module: ModuleFacts, console: Console, *, top: int | None) -> None:
    """Print the whole section; ``top`` limits each list (None: no limit)."""
    from rich.padding import Padding
    from rich.text import Text

    memory = module.memory
    if memory is None:
        print_summary(module, console)
        return
    _print_totals(memory, console)
    shown = _shown(memory)
    _print_buffers(shown[:top], console)
    print_hidden(console, 2, len(shown), top, "value")
    for call in memory.inside_calls[:top]:
        console.print(Padding(Text(safe(_inside(call))), (0, 0, 0, 2)))
    print_hidden(console, 2, len(memory.inside_calls), top, "library call")
    for saving in memory.savings[:top]:
        console.print(Padding(Text(safe(_saving(saving)), style="cyan"), (0, 0, 0, 2)))
    print_hidden(console, 2, len(memory.savings), top, "fusion", " that would lower the peak")
    for words in _donated(memory):
        console.print(Padding(Text(safe(words)), (0, 0, 0, 2)))
    if top is None and memory.over_time:
        for line in _plot(memory, console.width - 4):
            console.print(Text(f"  {line}", style="dim"))


def to_markdown(module: ModuleFacts, top: int | None) -> Iterator[str]:
    memory = module.memory
    if memory is None:
        yield f"Memory {_UNKNOWN}.\n"
        return
    yield f"Memory: {cell(_total(memory))}; {cell(_parts(memory))}.\n"
    if memory.at_peak:
        yield "| alive at the peak | kind | bytes | shape | source |\n|---|---|--:|---|---|"
        for buffer in _shown(memory)[:top]:
            yield (
                f"| {code(buffer.name)} | {cell(buffer.kind)} | {size(buffer.bytes)} "
                f"| {cell(buffer.shape)} | {cell(buffer.source or '')} |"
            )
        yield ""
    inside = map(_inside, memory.inside_calls[:top])
    for words in (*inside, *map(_saving, memory.savings[:top]), *_donated(memory)):
        yield f"- {cell(words)}"
    yield ""


def _print_totals(memory: MemoryFacts, console: Console) -> None:
    from rich.text import Text

    width = console.width
    line = Text.assemble(("\n  Memory", "bold"), f"  {shorten(_total(memory), width - 10)}")
    console.print(line, no_wrap=True, overflow="ellipsis")
    console.print(Text(f"  {shorten(_parts(memory), width - 2)}", style="dim"))


def _total(memory: MemoryFacts) -> str:
    inside, total = memory.inside_call_bytes, size(memory.total_bytes)
    if inside:
        total = f"up to about {size(memory.total_bytes + inside)}: {total} allocated"
    if memory.peak_bytes is None:
        return f"{total}; no file shows when values are alive"
    at = memory.peak_instruction or ""
    return f"{total}, of which {size(memory.peak_bytes)} alive at {at}"


def _inside(call: CallMemory) -> str:
    """Return what a library may reserve."""
    more = f" and {len(call.values) - 1} more" if len(call.values) > 1 else ""
    return (
        f"up to about {size(call.bytes)} inside {call.call}: the library may write "
        f"{call.values[0]}{more}"
    )


def _parts(memory: MemoryFacts) -> str:
    """Return what the total consists of, the largest part first."""
    parts = sorted(
        (
            ("parameters", memory.parameters),
            ("donated parameters", memory.donated),
            ("outputs", memory.outputs),
            ("temporaries", memory.temporaries),
            ("constants", memory.constants),
            ("thread-local", memory.thread_local),
        ),
        key=lambda part: -part[1],
    )
    return ", ".join(
        f"{name} {size(count)}{_fragments(memory) if name == 'temporaries' else ''}"
        for name, count in parts
        if count
    )


def _fragments(memory: MemoryFacts) -> str:
    share = 100 * memory.fragmentation / memory.temporaries
    return f" ({share:.0f}% fragmented)" if share >= 0.5 else ""


def _shown(memory: MemoryFacts) -> list[LiveBuffer]:
    """Return what is alive at the peak without what another value overwrites there."""
    return [each for each in memory.at_peak if each.in_place_of is None]


def _print_buffers(buffers: Sequence[LiveBuffer], console: Console) -> None:
    """Print a line for each, of at most the width of the console."""
    from rich.text import Text

    rows = [
        (size(each.bytes), _name(each), f"{each.kind}  {file_and_line(each.source)}".rstrip())
        for each in buffers
    ]
    left, middle, right = (max((len(row[place]) for row in rows), default=0) for place in range(3))
    middle = min(middle, max(console.width - left - right - 6, 8))
    for count, name, what in rows:
        line = f"  {count:>{left}}  {squeeze(name, middle):<{middle}}  {what}"
        console.print(Text(shorten(line, console.width), no_wrap=True))


def _name(buffer: LiveBuffer) -> str:
    """Return the name that the user knows a parameter by."""
    is_given = buffer.kind in ("parameter", "donated")
    return buffer.op_name if is_given and buffer.op_name else buffer.name


def _saving(saving: MemorySaving, width: int | None = None) -> str:
    """Return what a fusion would save; on a line of ``width``, if that is given."""
    consumers = saving.consumers
    into = f"into its {len(consumers)} readers" if len(consumers) > 1 else f"-> {consumers[0]}"
    saved = f"would take {size(saving.bytes_saved)} off the peak"
    why = f" ({saving.reason})" if saving.reason else ""
    pair = f"{saving.producer} {into}"
    if width is not None and len(f"fusing {pair} {saved}{why}") > width:
        why = ""
        pair = squeeze(pair, max(width - len(f"fusing  {saved}"), 16))
    return f"fusing {pair} {saved}{why}"


def _donated(memory: MemoryFacts, *, named: bool = True) -> Iterator[str]:
    """Yield a line on parameters whose memory an output could have, which it may name; with names,
    also on those that are still read then.
    """
    helpful = [each for each in memory.donations if each.read_by is None]
    if helpful:
        total = size(sum(each.bytes for each in helpful))
        outputs = "an output" if len(helpful) == 1 else "outputs"
        of = _names([each.parameter for each in helpful], "parameter", named)
        saved = f"would give {outputs} of {total} their memory{_peak(memory)}"
        yield f"{_donating(helpful, of)} {saved}"
    in_use = [each for each in memory.donations if each.read_by is not None]
    if in_use and named:
        of = _names([f"{each.parameter} ({each.read_by})" for each in in_use], "parameter", named)
        yield f"donating these may need a copy, as they are read when the output is written: {of}"


def _donating(donations: Sequence[Donation], names: str) -> str:
    """Return text such as *donate_argnums=(0, 2) (params, state)*."""
    numbers = sorted({each.argument for each in donations})
    written = str(numbers[0]) if len(numbers) == 1 else str(tuple(numbers))
    return f"donate_argnums={written} ({names})"


def _peak(memory: MemoryFacts) -> str:
    """Return what the peak becomes with donated parameters."""
    if memory.donated_peak is None or memory.peak_bytes is None:
        return ""
    if memory.donated_peak >= memory.peak_bytes:
        return "; the peak stays"
    return f": peak {size(memory.peak_bytes)} → {size(memory.donated_peak)}"


def _names(names: Sequence[str], noun: str, named: bool) -> str:
    """Return the first names, or only how many there are."""
    if not named:
        return plural(len(names), noun)
    more = len(names) - _NAMED
    return f"{', '.join(names[:_NAMED])}{f' and {more:,} more' if more > 0 else ''}"


def _plot(memory: MemoryFacts, width: int) -> Iterator[str]:
    """Yield the bytes alive from the first instruction to the last, each column the most of its
    places.
    """
    live = memory.over_time
    columns = min(width - 10, len(live))
    if columns < 1 or not memory.peak_bytes:
        return
    bounds = [place * len(live) // columns for place in range(columns + 1)]
    tops = [max(live[begin:end]) * _HEIGHT / memory.peak_bytes for begin, end in pairwise(bounds)]
    for row in range(_HEIGHT, 0, -1):
        label = size(memory.peak_bytes * row // _HEIGHT)
        filled = "".join("█" if top > row - 0.5 else "▄" if top > row - 1 else " " for top in tops)
        yield f"{label:>8} {filled.rstrip()}"
    yield f"{'':>8} {'instructions in their order':^{columns}}".rstrip()
