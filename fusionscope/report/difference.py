"""A difference as JSON, as Markdown, and on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusionscope.verify import rules_in_words as rules_used
from fusionscope.words import section
from fusionscope.words.terminal import print_block
from fusionscope.words.text import (
    cell,
    code,
    duration,
    file_and_line,
    or_dash,
    plural,
    print_hidden,
    safe,
    shorten,
    size,
)

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.compare.cost_changes import CostChanges, PlaceChange
    from fusionscope.compare.difference import (
        Difference,
        EditFacts,
        FusionDifference,
        ModuleDifference,
        OutcomeChange,
        SideFacts,
    )
    from fusionscope.compare.first_divergence import DecisionChange, FirstDivergence
    from fusionscope.compare.memory_difference import BufferDifference, MemoryDifference
    from fusionscope.facts.suggestions import Figures
    from fusionscope.reasons.recorded_decisions import ProducerDecision


def _same_lines(difference: Difference) -> Iterator[str]:
    """Yield what did not change, and what has the same meaning."""
    modules = plural(len(difference.same), "module")
    names = dict.fromkeys(unchanged.module for unchanged in difference.same)
    yield f"nothing changed in {modules} ({shorten(', '.join(names), 60)})"
    swapped = [name for unchanged in difference.same for name in unchanged.swapped]
    if swapped:
        yield _swapped_line(swapped)
    for flags in dict.fromkeys(unchanged.flags for unchanged in difference.same):
        yield from _flag_lines(flags)


def _swapped_line(names: Sequence[str]) -> str:
    return (
        f"operands swapped, without a change of meaning, in {plural(len(names), 'operation')}: "
        f"{shorten(', '.join(names), 70)}"
    )


def _flag_lines(flags: tuple[tuple[str, str, str], ...]) -> Iterator[str]:
    for name, old, new in flags:
        yield f"flag {name} {shorten(old, 200) or 'not set'} → {shorten(new, 200) or 'not set'}"


def _totals(module: ModuleDifference) -> str:
    before, after = module.before, module.after
    kinds = [
        f"{kind} {before.kinds.get(kind, 0):,} → {after.kinds.get(kind, 0):,}"
        for kind in dict.fromkeys((*before.kinds, *after.kinds))
        if before.kinds.get(kind, 0) != after.kinds.get(kind, 0)
    ]
    time = ""
    if not module.is_incomparable and before.time_us is not None and after.time_us is not None:
        time = f", {_time_word(module)} {duration(before.time_us)} → {duration(after.time_us)}"
    return (
        f"launches {before.launches:,} → {after.launches:,}, bytes moved "
        f"{size(before.bytes_moved)} → {size(after.bytes_moved)}{time}"
        + (f" ({', '.join(kinds)})" if kinds else "")
        + (
            ""
            if before.exact and after.exact
            else "; code that runs an unknown number of times counts once"
        )
    )


def _time_word(module: ModuleDifference) -> str:
    """Return what a time is: a CPU's ranks kernels and says nothing of the machine."""
    return "nominal time" if module.is_nominal else "time"


def _header_lines(module: ModuleDifference) -> Iterator[str]:
    yield from _flag_lines(module.flags)
    for name, old, new in module.header:
        yield f"{name} {shorten(old, 200) or 'none'} → {shorten(new, 200) or 'none'}"
    if module.swapped:
        yield _swapped_line(module.swapped)


def _side_text(side: SideFacts) -> str:
    rules = side.rules.version if side.rules is not None else ""
    parts = [side.path, side.module, side.stage, side.device or "", rules]
    return "  ".join(part for part in parts if part)


def _pass_of(stage: str) -> str:
    """Return ``priority-fusion in fusion`` for a stage's label; the label itself if it names no
    pass.
    """
    pipeline, after, pass_text = stage.partition(".after_")
    if pass_text.startswith("pipeline-start"):
        return f"what runs before {pipeline}"
    return f"{pass_text.partition('.before_')[0]} in {pipeline}" if after else stage


def _divergence_text(divergence: FirstDivergence) -> str:
    same = f"the same up to {_pass_of(divergence.last_same)}" if divergence.last_same else ""
    ours, theirs = divergence.stage_before, divergence.stage_after
    if ours and theirs and _pass_of(ours) == _pass_of(theirs):
        first = f"{_pass_of(ours)} produced different results"
    elif ours and theirs:
        first = f"then {_pass_of(ours)} changed only the first, {_pass_of(theirs)} only the second"
    elif ours or theirs:
        side = "first" if ours else "second"
        first = f"then {_pass_of(ours or theirs or '')} changed only the {side}"
    else:
        return "the same in every stage, except for annotations for later passes"
    if not divergence.is_exact:
        first += " (not every pass was dumped: it may have been an earlier one)"
    return f"{same}; {first}" if same else f"never the same: {first}"


def _verdict_text(verdict: ProducerDecision) -> str:
    estimate = verdict.estimate
    times = ""
    if estimate is not None:
        word = "saves" if estimate.benefit_us >= 0 else "costs"
        times = (
            f" ({word} {abs(estimate.benefit_us):.4g} us: {estimate.fused_us:g} us fused, "
            f"{estimate.unfused_us:g} us apart)"
        )
    return f"fused{times}" if verdict.is_fused else f"not fused: {verdict.message}{times}"


def _decision_text(decision: DecisionChange) -> str:
    tie = {True: "; a near tie", False: "; not a near tie", None: ""}[decision.is_near_tie]
    title = "first decision that differs"
    if not decision.is_first:
        title = (
            "a decision that differs (earlier ones may too: not all operations are certainly the "
            "same)"
        )
    return (
        f"{title}: {' -> '.join(decision.subject_before)}: {_verdict_text(decision.before)} → "
        f"{_verdict_text(decision.after)}{tie}"
    )


def _reasons(change: OutcomeChange) -> Iterator[str]:
    for name, pair in (("before", change.before), ("after", change.after)):
        if pair.reason is not None:
            title = f": {pair.title}" if pair.title else ""
            message = f" ({pair.message})" if pair.message else ""
            guess = "a guess: " if pair.evidence == "guess" else ""
            yield f"{name}: {guess}{pair.reason}{title}{message}"
        elif pair.kernel is not None:
            stage = f", since {_pass_of(pair.stage)}" if pair.stage else ""
            yield f"{name}: in {pair.kernel}{stage}"


def _passes_text(change: FusionDifference) -> str:
    before, after = (", ".join(passes) for passes in (change.passes_before, change.passes_after))
    if before and after and before != after:
        return f"made by {before} before, by {after} after"
    return f"made by {before or after}" if before or after else ""


def _lost_and_gained(module: ModuleDifference) -> str:
    parts = [
        f"{len(names):,} {verb}: {shorten(', '.join(names), 70)}" if names else f"none {verb}"
        for verb, names in (("lost", module.lost), ("gained", module.gained))
    ]
    return f"{'; '.join(parts)}; {module.changed:,} changed"


_CAUSES = {
    "copy": "a copy",
    "size": "has another size",
    "other-time": "on both sides, but alive at only one peak",
    "new": "new",
    "gone": "gone",
}


def _memory_text(memory: MemoryDifference) -> str:
    before, after = memory.before, memory.after
    text = (
        f"{size(before.total_bytes)} → {size(after.total_bytes)}, at the peak "
        f"{size(before.peak_bytes)} → {size(after.peak_bytes)}, "
        f"{_signed(after.peak_bytes - before.peak_bytes)}"
    )
    if before.inside_calls or after.inside_calls:
        inside = f"{size(before.inside_calls)} → {size(after.inside_calls)}"
        text += f"; inside library calls up to about {inside}"
    return text


def _value_text(buffer: BufferDifference) -> str:
    place = f" ({file_and_line(buffer.source)})" if buffer.source else ""
    return f"{buffer.name}{place}"


def _cause(buffer: BufferDifference) -> str:
    if buffer.producer is None:
        return _CAUSES[buffer.cause]
    verb = "no longer fused" if buffer.cause == "lost-fusion" else "fused now"
    reason = f" ({buffer.reason})" if buffer.reason else ""
    return f"{buffer.producer} -> {', '.join(buffer.consumers)} {verb}{reason}"


def _signed(count: int) -> str:
    return f"{'-' if count < 0 else '+'}{size(abs(count))}"


def _edit_text(edit: EditFacts) -> str:
    before, after = edit.before, edit.after
    if before is None or after is None:
        only = before or after
        assert only is not None
        return f"{only.name} = {only.opcode} {only.shape}"
    names = before.name if before.name == after.name else f"{before.name} → {after.name}"
    fields = "; ".join(
        f"{name} {shorten(old, 60) or 'none'} → {shorten(new, 60) or 'none'}"
        for name, old, new in edit.fields
    )
    return f"{names} ({after.opcode}){f': {fields}' if fields else ''}"


def _matched(module: ModuleDifference) -> str:
    steps = ", ".join(f"{count:,} by {step}" for step, count in module.steps.items())
    return f"{100 * module.certain:.0f}% of instructions matched with certainty: {steps}"


@dataclass(frozen=True, slots=True)
class Table:
    """A part of a difference: the same titles and words in every format. ``names`` are the columns
    that hold names.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sheet:
    """What differs between two modules: lines, of which ``warnings`` come first, notes, and tables.
    ``pairs`` is the index of the table of pairs, None if there is none.
    """

    warnings: tuple[str, ...]
    lines: tuple[str, ...]
    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    pairs: int | None


def sheet_of(module: ModuleDifference) -> Sheet:
    tables = list(_tables(module))
    return Sheet(
        tuple(_warnings(module)),
        tuple(_lines(module)),
        module.notes,
        tuple(tables),
        bool(module.costs) if module.outcomes else None,
    )


def _warnings(module: ModuleDifference) -> Iterator[str]:
    return (doubt.text for doubt in module.unrelated)


def _lines(module: ModuleDifference) -> Iterator[str]:
    yield _totals(module)
    yield from _header_lines(module)
    if module.first_divergence:
        yield _divergence_text(module.first_divergence)
    if module.decision:
        yield _decision_text(module.decision)


def _tables(module: ModuleDifference) -> Iterator[Table]:
    """Yield what differs, the cost first."""
    if module.costs:
        yield _cost_table(module.costs)
    if module.outcomes:
        yield _pair_table(module.outcomes)
    if module.memory:
        buffers = (
            (_signed(buffer.growth), _value_text(buffer), _cause(buffer))
            for buffer in module.memory.buffers
        )
        title = f"Memory ({_memory_text(module.memory)})"
        yield Table(title, ("at the peak", "value", "why"), tuple(buffers))
    if module.fusions:
        changes = (
            (
                fusion.change.kind,
                fusion.change.text,
                f"{fusion.change.count:,}",
                _passes_text(fusion),
            )
            for fusion in module.fusions
        )
        title = f"Fusions ({_lost_and_gained(module)})"
        yield Table(title, ("fusions", "what changed", "alike", "passes"), tuple(changes))
    if module.edits:
        edits = ((edit.kind, _edit_text(edit), f"{edit.count:,}") for edit in module.edits)
        yield Table(_edits_title(module), ("instructions", "what changed", "alike"), tuple(edits))


def _pair_table(outcomes: Sequence[OutcomeChange]) -> Table:
    rows = (
        (
            change.before.producer.name,
            change.before.consumer.name,
            f"{change.count:,}",
            f"{change.before.outcome} → {change.after.outcome}",
            "; ".join(_reasons(change)),
        )
        for change in outcomes
    )
    heads = "producer", "consumer", "pairs", "outcome", "why"
    return Table(_pairs_title(outcomes), heads, tuple(rows), (0, 1))


def _cost_table(costs: CostChanges) -> Table:
    """Return the lines, or scopes, whose cost differs, with both figures."""
    is_timed = any(side.time_us for place in costs.places for side in (place.before, place.after))
    word = "nominal time" if costs.is_nominal else "time"
    rows = (
        (
            place.place,
            *([_both(place, lambda side: or_dash(side.time_us, duration))] if is_timed else []),
            _both(place, lambda side: or_dash(side.launches, lambda count: f"{count:,}")),
            _both(place, lambda side: or_dash(side.bytes_moved, size)),
        )
        for place in costs.places
    )
    return Table(
        f"Where the {'time' if is_timed else 'bytes'} went, by {costs.by}",
        (str(costs.by), *([word] if is_timed else []), "launches", "bytes"),
        tuple(rows),
    )


def _both(change: PlaceChange, text: Callable[[Figures], str]) -> str:
    before, after = text(change.before), text(change.after)
    return before if before == after else f"{before} → {after}"


def _pairs_title(outcomes: Sequence[OutcomeChange]) -> str:
    total = sum(change.count for change in outcomes)
    return f"{plural(total, 'pair')} {'ended' if total > 1 else 'that ended'} differently"


def _edits_title(module: ModuleDifference) -> str:
    count = sum(edit.count for edit in module.edits)
    also = f", {module.incidental:,} more go with fusions" if module.incidental else ""
    return f"Instructions ({plural(count, 'edit')}{also})"


def same_lines(difference: Difference) -> list[str]:
    """Return what did not change, and the modules of one side only."""
    same = _same_lines(difference) if difference.same else ()
    return [*same, *_unpaired(difference)]


def to_markdown(difference: Difference, *, top: int | None) -> str:
    """Return headings and tables; ``top`` limits every list (None: no limit)."""
    return "\n".join(_markdown(difference, top)) + "\n"


def _markdown(difference: Difference, top: int | None) -> Iterator[str]:
    for module in difference.modules:
        sheet = sheet_of(module)
        yield f"## {cell(module.before.module)}\n"
        for line in sheet.warnings:
            yield f"> {cell(line)}\n"
        yield f"- before: {cell(_side_text(module.before))}"
        yield f"- after: {cell(_side_text(module.after))}"
        for line in sheet.lines:
            yield f"- {cell(line)}"
        yield ""
        for note in sheet.notes:
            yield f"> {cell(note)}\n"
        for table in sheet.tables:
            yield from _markdown_table(table, top)
        yield f"{_matched(module)}.\n"
    for line in same_lines(difference):
        yield f"{cell(line)}.\n"
    for problem in (*difference.problems, *difference.notes):
        yield f"> {cell(problem)}\n"


_NUMBERS = frozenset({"alike", "at the peak", "bytes", "launches", "nominal time", "pairs", "time"})


def _markdown_table(table: Table, top: int | None) -> Iterator[str]:
    yield f"{cell(table.title)}:\n"
    yield f"| {' | '.join(table.heads)} |"
    yield f"|{'|'.join('--:' if head in _NUMBERS else '---' for head in table.heads)}|"
    for row in table.rows[:top]:
        cells = (code(text) if i in table.names else cell(text) for i, text in enumerate(row))
        yield f"| {' | '.join(cells)} |"
    yield from _more(len(table.rows), top)


def _more(count: int, top: int | None) -> Iterator[str]:
    if top is not None and count > top:
        yield f"\n… and {count - top:,} more."
    yield ""


def _unpaired(difference: Difference) -> Iterator[str]:
    for side, names in (("before", difference.only_before), ("after", difference.only_after)):
        if names:
            yield f"only {side}: {', '.join(names)}"


def _print_head(module: ModuleDifference, console: Console, top: int | None) -> None:
    """Print the two sides, what limits the comparison, and what differs in total and by line."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text(safe(module.before.module), style="bold"))
    for line in _warnings(module):
        console.print(Padding(Text(safe(line), style="yellow"), (0, 0, 0, 2)))
    for name, side in (("before", module.before), ("after ", module.after)):
        text = Text(f"{name} {safe(_side_text(side))}", style="dim")
        console.print(Padding(text, (0, 0, 0, 2)))
        if side.rules is not None and side.rules.guessed:
            rules = Text(safe(rules_used.in_words(side.rules)), style="yellow")
            console.print(Padding(rules, (0, 0, 0, 9)))
    for note in module.notes:
        console.print(Padding(Text(f"note: {safe(note)}", style="yellow"), (0, 0, 0, 2)))
    first, *lines = _lines(module)
    console.print(Padding(Text(safe(first)), (0, 0, 0, 2)))
    if module.costs:
        _print_costs(module.costs, console, top)
        if lines:
            console.print()
    for line in lines:
        console.print(Padding(Text(safe(line)), (0, 0, 0, 2)))


def print_difference(difference: Difference, console: Console, *, top: int | None) -> None:
    """Print it to a terminal; ``top`` as in ``to_markdown``."""
    from rich.padding import Padding
    from rich.text import Text

    for module in difference.modules:
        _print_head(module, console, top)
        if module.outcomes:
            _print_outcomes(module.outcomes, console, top)
        if module.memory:
            _print_memory(module.memory, console, top)
        if module.fusions:
            _print_fusions(module, console, top)
        if module.edits:
            _print_edits(module, console, top)
        console.print(Padding(Text(_matched(module), style="dim"), (1, 0, 1, 2)))
    if difference.same:
        for line in _same_lines(difference):
            console.print(Text(safe(line)))
    for unpaired in _unpaired(difference):
        console.print(shorten(unpaired, console.width))


def _print_costs(costs: CostChanges, console: Console, top: int | None) -> None:
    table = _cost_table(costs)
    heads = (table.title, *table.heads[1:])
    columns = (section.Column(head, place > 0, place == 0) for place, head in enumerate(heads))
    rows = tuple(map(tuple, table.rows[:top]))
    hidden = len(table.rows) - len(rows)
    console.print()
    block = section.Table(columns=tuple(columns), rows=rows, noun=str(costs.by), hidden=hidden)
    print_block(block, console)


def _print_outcomes(outcomes: tuple[OutcomeChange, ...], console: Console, top: int | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text(f"\n  {_pairs_title(outcomes)}", style="bold"))
    for rank, change in enumerate(outcomes[:top], 1):
        line = Text(f"  {rank}. ")
        line.append(safe(change.before.producer.name), style="bold")
        line.append(" -> ")
        line.append(safe(change.before.consumer.name), style="bold")
        saved = max(change.before.bytes_saved, change.after.bytes_saved)
        alike = f"  x{change.count:,} alike" if change.count > 1 else ""
        line.append(f"  {size(saved)}{alike}  ")
        style = "red" if change.is_lost else "green"
        line.append(f"{change.before.outcome} → {change.after.outcome}", style=style)
        console.print(line)
        for reason in _reasons(change):
            console.print(Padding(Text(safe(reason)), (0, 0, 0, 5)))
    print_hidden(console, 4, len(outcomes), top, "kind", " of pairs")


def _print_memory(memory: MemoryDifference, console: Console, top: int | None) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    heading = Text(f"Memory ({_memory_text(memory)})", style="bold")
    console.print(Padding(heading, (1, 0, 0, 2)))
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for buffer in memory.buffers[:top]:
        style = "red" if buffer.growth > 0 else "green"
        table.add_row(
            Text(_signed(buffer.growth), style=style),
            Text(safe(f"{_value_text(buffer)}: {_cause(buffer)}")),
        )
    console.print(Padding(table, (0, 0, 0, 4)))
    print_hidden(console, 4, len(memory.buffers), top, "value")


def _print_fusions(module: ModuleDifference, console: Console, top: int | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    fusions = module.fusions
    heading = Text(f"Fusions ({_lost_and_gained(module)})", style="bold")
    console.print(Padding(heading, (1, 0, 0, 2)))
    for fusion in fusions[:top]:
        alike = f"  x{fusion.change.count:,} alike" if fusion.change.count > 1 else ""
        line = Text(f"{fusion.change.kind}: ", style="bold")
        line.append(f"{safe(fusion.change.text)}{alike}", style="not bold")
        console.print(Padding(line, (0, 0, 0, 4)))
        passes = _passes_text(fusion)
        if passes:
            console.print(Padding(Text(safe(passes), style="dim"), (0, 0, 0, 6)))
    print_hidden(console, 4, len(fusions), top, "kind", " of changes")


def _print_edits(module: ModuleDifference, console: Console, top: int | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text(f"\n  {_edits_title(module)}", style="bold"))
    for edit in module.edits[:top]:
        alike = f"  x{edit.count:,} alike" if edit.count > 1 else ""
        line = Text(f"{edit.kind}: ", style="bold")
        line.append(f"{safe(_edit_text(edit))}{alike}", style="not bold")
        console.print(Padding(line, (0, 0, 0, 4)))
    print_hidden(console, 4, len(module.edits), top, "kind", " of edits")
