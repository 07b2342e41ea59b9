"""A difference as JSON, as Markdown, and on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.report import rules_used
from fusionscope.report.text import (
    cell,
    code,
    file_and_line,
    plural,
    print_hidden,
    safe,
    shorten,
    size,
)

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.explain.difference import (
        Difference,
        EditFacts,
        FusionDifference,
        ModuleDifference,
        OutcomeChange,
        SideFacts,
    )
    from fusionscope.explain.first_divergence import DecisionChange, FirstDivergence
    from fusionscope.explain.memory_difference import BufferDifference, MemoryDifference
    from fusionscope.explain.recorded_decisions import ProducerDecision


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
    return (
        f"launches {before.launches:,} → {after.launches:,}, bytes moved "
        f"{size(before.bytes_moved)} → {size(after.bytes_moved)}"
        + (f" ({', '.join(kinds)})" if kinds else "")
        + (
            ""
            if before.exact and after.exact
            else "; code that runs an unknown number of times counts once"
        )
    )


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
    pipeline, after, rest = stage.partition(".after_")
    return f"{rest.partition('.before_')[0]} in {pipeline}" if after else stage


def _divergence_text(found: FirstDivergence) -> str:
    same = f"the same up to {_pass_of(found.last_same)}" if found.last_same else ""
    one, other = found.stage_before, found.stage_after
    if one and other and _pass_of(one) == _pass_of(other):
        first = f"{_pass_of(one)} produced different results"
    elif one and other:
        first = f"then {_pass_of(one)} changed only the first, {_pass_of(other)} only the second"
    elif one or other:
        side = "first" if one else "second"
        first = f"then {_pass_of(one or other or '')} changed only the {side}"
    else:
        return "the same in every stage, except for annotations for later passes"
    if not found.is_exact:
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


def _passes_text(each: FusionDifference) -> str:
    before, after = (", ".join(passes) for passes in (each.passes_before, each.passes_after))
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


def _buffer_text(buffer: BufferDifference) -> str:
    place = f" ({file_and_line(buffer.source)})" if buffer.source else ""
    return f"{buffer.name}{place}: {_cause(buffer)}"


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


def to_markdown(difference: Difference, *, top: int | None) -> str:
    """Yield headings and tables; ``top`` limits every list (None: no limit)."""
    return "\n".join(_markdown(difference, top)) + "\n"


def _markdown(difference: Difference, top: int | None) -> Iterator[str]:
    for module in difference.modules:
        yield f"## {cell(module.before.module)}\n"
        yield f"- before: {cell(_side_text(module.before))}"
        yield f"- after: {cell(_side_text(module.after))}"
        yield f"- {cell(_totals(module))}"
        for line in _header_lines(module):
            yield f"- {cell(line)}"
        if module.first_divergence:
            yield f"- {cell(_divergence_text(module.first_divergence))}"
        if module.decision:
            yield f"- {cell(_decision_text(module.decision))}"
        yield ""
        for note in module.notes:
            yield f"> {cell(note)}\n"
        yield from _tables(module, top)
        yield f"{_matched(module)}.\n"
    if difference.same:
        for line in _same_lines(difference):
            yield f"{cell(line)}.\n"
    for line in _unpaired(difference):
        yield f"{cell(line)}.\n"
    for problem in (*difference.problems, *difference.notes):
        yield f"> {cell(problem)}\n"


def _tables(module: ModuleDifference, top: int | None) -> Iterator[str]:
    """Yield pairs, fusions and instructions that differ, as Markdown."""
    if module.outcomes:
        yield "| producer | consumer | pairs | outcome | why |\n|---|---|--:|---|---|"
        for change in module.outcomes[:top]:
            yield (
                f"| {code(change.before.producer.name)} "
                f"| {code(change.before.consumer.name)} | {change.count:,} "
                f"| {change.before.outcome} → {change.after.outcome} "
                f"| {cell('; '.join(_reasons(change)))} |"
            )
        yield from _more(len(module.outcomes), top)
    if module.memory:
        yield f"Memory: {_memory_text(module.memory)}.\n"
        if module.memory.buffers:
            yield "| at the peak | value | why |\n|--:|---|---|"
            for buffer in module.memory.buffers[:top]:
                place = f" {cell(file_and_line(buffer.source))}" if buffer.source else ""
                yield (
                    f"| {_signed(buffer.growth)} | {code(buffer.name)}{place} "
                    f"| {cell(_cause(buffer))} |"
                )
            yield from _more(len(module.memory.buffers), top)
    if module.fusions:
        yield f"Fusions: {cell(_lost_and_gained(module))}.\n"
        yield "| fusions | what changed | alike | passes |\n|---|---|--:|---|"
        for each in module.fusions[:top]:
            yield (
                f"| {each.change.kind} | {cell(each.change.text)} | {each.change.count:,} "
                f"| {cell(_passes_text(each))} |"
            )
        yield from _more(len(module.fusions), top)
    if module.edits:
        yield "| instructions | what changed | alike |\n|---|---|--:|"
        for edit in module.edits[:top]:
            yield f"| {edit.kind} | {cell(_edit_text(edit))} | {edit.count:,} |"
        yield from _more(len(module.edits), top)


def _more(count: int, top: int | None) -> Iterator[str]:
    if top is not None and count > top:
        yield f"\n… and {count - top:,} more."
    yield ""


def _unpaired(difference: Difference) -> Iterator[str]:
    for side, names in (("before", difference.only_before), ("after", difference.only_after)):
        if names:
            yield f"only {side}: {', '.join(names)}"


def print_difference(difference: Difference, console: Console, *, top: int | None) -> None:
    """Print it to a terminal; ``top`` as in ``to_markdown``."""
    from rich.padding import Padding
    from rich.text import Text

    for module in difference.modules:
        console.print(Text(safe(module.before.module), style="bold"))
        for name, side in (("before", module.before), ("after ", module.after)):
            text = Text(f"{name} {safe(_side_text(side))}", style="dim")
            console.print(Padding(text, (0, 0, 0, 2)))
            if side.rules is not None and side.rules.guessed:
                rules = Text(safe(rules_used.in_words(side.rules)), style="yellow")
                console.print(Padding(rules, (0, 0, 0, 9)))
        for note in module.notes:
            console.print(Padding(Text(f"note: {safe(note)}", style="yellow"), (0, 0, 0, 2)))
        lines = [_totals(module), *_header_lines(module)]
        if module.first_divergence:
            lines.append(_divergence_text(module.first_divergence))
        if module.decision:
            lines.append(_decision_text(module.decision))
        for line in lines:
            console.print(Padding(Text(safe(line)), (0, 0, 0, 2)))
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


def _print_outcomes(outcomes: tuple[OutcomeChange, ...], console: Console, top: int | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    total = sum(change.count for change in outcomes)
    verb = "ended" if total > 1 else "that ended"
    console.print(Text(f"\n  {plural(total, 'pair')} {verb} differently", style="bold"))
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
        table.add_row(Text(_signed(buffer.growth), style=style), Text(safe(_buffer_text(buffer))))
    console.print(Padding(table, (0, 0, 0, 4)))
    print_hidden(console, 4, len(memory.buffers), top, "value")


def _print_fusions(module: ModuleDifference, console: Console, top: int | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    fusions = module.fusions
    heading = Text(f"Fusions ({_lost_and_gained(module)})", style="bold")
    console.print(Padding(heading, (1, 0, 0, 2)))
    for each in fusions[:top]:
        alike = f"  x{each.change.count:,} alike" if each.change.count > 1 else ""
        line = Text(f"{each.change.kind}: ", style="bold")
        line.append(f"{safe(each.change.text)}{alike}", style="not bold")
        console.print(Padding(line, (0, 0, 0, 4)))
        passes = _passes_text(each)
        if passes:
            console.print(Padding(Text(safe(passes), style="dim"), (0, 0, 0, 6)))
    print_hidden(console, 4, len(fusions), top, "kind", " of changes")


def _print_edits(module: ModuleDifference, console: Console, top: int | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    count = sum(edit.count for edit in module.edits)
    also = f", {module.incidental:,} more go with fusions" if module.incidental else ""
    console.print(Text(f"\n  Instructions ({plural(count, 'edit')}{also})", style="bold"))
    for edit in module.edits[:top]:
        alike = f"  x{edit.count:,} alike" if edit.count > 1 else ""
        line = Text(f"{edit.kind}: ", style="bold")
        line.append(f"{safe(_edit_text(edit))}{alike}", style="not bold")
        console.print(Padding(line, (0, 0, 0, 4)))
    print_hidden(console, 4, len(module.edits), top, "kind", " of edits")
