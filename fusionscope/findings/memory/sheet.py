"""The memory of a module in words: the peak, what it is made of, and how it gets lower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.findings.memory.facts import (
    CallMemory,
    Donation,
    LiveBuffer,
    MemoryFacts,
    MemorySaving,
)
from fusionscope.words.section import (
    Block,
    Column,
    Line,
    Lines,
    Plot,
    Section,
    Span,
    Table,
    Tone,
    lines,
    spans,
)
from fusionscope.words.text import file_and_line, hidden_entries, plural, size

if TYPE_CHECKING:
    from fusionscope.facts.result import ModuleFacts

_TITLE = "Memory"
_UNKNOWN = Section(
    title=_TITLE,
    summary=spans(("unknown: the dump has no usable file about it", Tone.QUIET)),
)
_BUFFERS = 1  # on the first screen
_NAMED_DONATIONS = 3
_PLOT_FROM = 20  # entries of a list: a shorter report has no plot
_COLUMNS = (
    Column("bytes", is_number=True),
    Column("alive at the peak", is_flexible=True),
    Column("kind"),
    Column("source"),
)


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield at most five lines: totals, the largest value at the peak, what would lower it; nothing
    if it is unknown.
    """
    memory = module.find(MemoryFacts)
    if memory is None:
        return
    blocks: list[Block] = [_parts(memory), _buffers(_shown(memory)[:_BUFFERS], hidden=0)]
    blocks += [_cut(map(_inside, memory.inside_calls[:1]))]
    blocks += [Lines(tuple(_saving(saving, is_cut=True) for saving in memory.savings[:1]))]
    blocks += [_cut(_donated(memory, is_brief=True))]
    yield Section(title=_TITLE, summary=spans(_total(memory)), blocks=tuple(blocks), is_cut=True)


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the whole section; ``top`` limits each list (None: no limit)."""
    memory = module.find(MemoryFacts)
    if memory is None:
        yield _UNKNOWN
        return
    visible = _shown(memory)
    blocks: list[Block] = [_parts(memory)]
    blocks.append(_buffers(visible[:top], hidden=len(visible) - len(visible[:top])))
    blocks.append(lines(map(_inside, memory.inside_calls[:top])))
    blocks.append(_more(len(memory.inside_calls), top, "library call"))
    blocks.append(Lines(tuple(_saving(saving, is_cut=False) for saving in memory.savings[:top])))
    blocks.append(_more(len(memory.savings), top, "fusion", " that would lower the peak"))
    blocks.append(lines(_donated(memory, is_brief=False)))
    if top is None or top >= _PLOT_FROM:
        blocks.append(Plot("instructions in their order", memory.over_time))
    yield Section(title=_TITLE, summary=spans(_total(memory)), blocks=tuple(blocks), is_cut=True)


def _cut(texts: Iterator[str]) -> Lines:
    return lines(texts, is_cut=True)


def _more(total: int, top: int | None, noun: str, what: str = "") -> Lines:
    if top is None or total <= top:
        return Lines(())
    return lines([hidden_entries(total - top, noun, what)], Tone.QUIET)


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


def _parts(memory: MemoryFacts) -> Lines:
    """Return what the total consists of, the largest part first."""
    parts = (
        ("parameters", memory.parameters),
        ("donated parameters", memory.donated),
        ("outputs", memory.outputs),
        ("temporaries", memory.temporaries),
        ("constants", memory.constants),
        ("thread-local", memory.thread_local),
    )
    text = ", ".join(
        f"{name} {size(count)}{_fragments(memory) if name == 'temporaries' else ''}"
        for name, count in sorted(parts, key=lambda part: -part[1])
        if count
    )
    return lines([text] if text else (), Tone.QUIET)


def _fragments(memory: MemoryFacts) -> str:
    share = 100 * memory.fragmentation / memory.temporaries
    return f" ({share:.0f}% fragmented)" if share >= 0.5 else ""


def _shown(memory: MemoryFacts) -> list[LiveBuffer]:
    """Return what is alive at the peak without what another value overwrites there."""
    return [buffer for buffer in memory.at_peak if buffer.in_place_of is None]


def _buffers(buffers: Sequence[LiveBuffer], hidden: int) -> Table:
    rows = tuple(
        (size(buffer.bytes), _name(buffer), buffer.kind, file_and_line(buffer.source))
        for buffer in buffers
    )
    return Table(columns=_COLUMNS, rows=rows, noun="value", hidden=hidden, has_head=False)


def _name(buffer: LiveBuffer) -> str:
    """Return the name that the user knows a parameter by."""
    is_parameter = buffer.kind in ("parameter", "donated")
    return buffer.op_name if is_parameter and buffer.op_name else buffer.name


def _saving(saving: MemorySaving, *, is_cut: bool) -> Line:
    """Return what a fusion would save."""
    consumers = saving.consumers
    into = f"into its {len(consumers)} readers" if len(consumers) > 1 else f"-> {consumers[0]}"
    why = f" ({saving.reason})" if saving.reason else ""
    saved = f" would take {size(saving.bytes_saved)} off the peak{why}"
    return Line(
        spans=(
            Span("fusing ", Tone.HINT),
            Span(f"{saving.producer} {into}", Tone.HINT, is_flexible=True),
            Span(saved, Tone.HINT),
        ),
        is_cut=is_cut,
    )


def _donated(memory: MemoryFacts, *, is_brief: bool) -> Iterator[str]:
    """Yield a line on parameters whose memory an output could have; in full also on those that are
    still read then.
    """
    helpful = [donation for donation in memory.donations if donation.read_by is None]
    if helpful:
        total = size(sum(donation.bytes for donation in helpful))
        outputs = "an output" if len(helpful) == 1 else "outputs"
        names = _names([donation.parameter for donation in helpful], is_brief=is_brief)
        whose = "its" if len(helpful) == 1 else "their"
        yield f"{_donating(helpful, names)}: {_peak(memory)}{outputs} of {total} in {whose} memory"
    in_use = [donation for donation in memory.donations if donation.read_by is not None]
    if in_use and not is_brief:
        names = _names([f"{donation.parameter} ({donation.read_by})" for donation in in_use])
        yield f"donating these may need a copy: they are read when the output is written: {names}"


def _donating(donations: Sequence[Donation], names: str) -> str:
    """Return text such as *donate_argnums=(0, 2) (params, state)*."""
    numbers = sorted({donation.argument for donation in donations if donation.argument is not None})
    if not numbers:
        return f"donating {names}"
    argnums = str(numbers[0]) if len(numbers) == 1 else str(tuple(numbers))
    return f"donate_argnums={argnums} ({names})"


def _peak(memory: MemoryFacts) -> str:
    """Return what the peak becomes with donated parameters; empty if it is unknown."""
    if memory.donated_peak is None or memory.peak_bytes is None:
        return ""
    if memory.donated_peak >= memory.peak_bytes:
        return "the peak stays, "
    return f"peak {size(memory.peak_bytes)} → {size(memory.donated_peak)}, "


def _names(names: Sequence[str], *, is_brief: bool = False) -> str:
    """Return the first names, or only how many there are."""
    if is_brief:
        return plural(len(names), "parameter")
    more = len(names) - _NAMED_DONATIONS
    more_text = f" and {more:,} more" if more > 0 else ""
    return f"{', '.join(names[:_NAMED_DONATIONS])}{more_text}"
