"""A difference in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.report.history import change_entry
from fusionscope.verify import rules_in_words
from fusionscope.words.section import (
    Column,
    Entry,
    Line,
    Lines,
    Section,
    Table,
    Tone,
    line,
    lines,
    ranked,
    spans,
)
from fusionscope.words.text import duration, file_and_line, or_dash, plural, shorten, size

if TYPE_CHECKING:
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


def sections_of(difference: Difference, top: int | None) -> Iterator[Section]:
    """Yield what differs in each module, then what does not; ``top`` limits every list (None: no
    limit).
    """
    for module in difference.modules:
        yield from module_sections(module, top)
    if same := same_lines(difference):
        yield Section(blocks=(lines(same),), is_heading=True)


def module_sections(module: ModuleDifference, top: int | None) -> Iterator[Section]:
    """Yield the two sides, and what differs in total; then each kind of difference."""
    texts = (*_sides(module), *map(line, _lines(module)), line(_matched(module), Tone.QUIET))
    yield Section(title=module.before.module, blocks=(Lines(texts),), is_heading=True)
    if module.costs:
        yield _costs(module.costs, top)
    if module.outcomes:
        yield _outcomes(module.outcomes, top)
    if module.memory:
        yield _memory(module.memory, top)
    if module.fusions:
        yield _fusions(module, top)
    if module.edits:
        yield _edits(module, top)


def _sides(module: ModuleDifference) -> Iterator[Line]:
    """Yield the two sides, and what limits the comparison."""
    for doubt in module.unrelated:
        yield line(doubt.text, Tone.WARNING)
    for name, side in (("before", module.before), ("after ", module.after)):
        yield line(f"{name} {_side_text(side)}", Tone.QUIET)
        if side.rules is not None and side.rules.guessed:
            yield line(rules_in_words.in_words(side.rules), Tone.WARNING)
    for note in module.notes:
        yield line(f"note: {note}", Tone.WARNING)


def _lines(module: ModuleDifference) -> Iterator[str]:
    yield _totals(module)
    yield from _header_lines(module)
    if module.first_divergence:
        yield _divergence_text(module.first_divergence)
    if module.decision:
        yield _decision_text(module.decision)


def _costs(costs: CostChanges, top: int | None) -> Section:
    """Return the lines, or scopes, whose cost differs, with both figures."""
    is_timed = any(side.time_us for place in costs.places for side in (place.before, place.after))
    rows = tuple(
        (
            place.place,
            *([_both(place, lambda side: or_dash(side.time_us, duration))] if is_timed else []),
            _both(place, lambda side: or_dash(side.launches, lambda count: f"{count:,}")),
            _both(place, lambda side: or_dash(side.bytes_moved, size)),
        )
        for place in costs.places[:top]
    )
    time = ["nominal time" if costs.is_nominal else "time"] if is_timed else []
    columns = (
        Column(str(costs.by), is_flexible=True),
        *(Column(title, is_number=True) for title in (*time, "launches", "bytes")),
    )
    hidden = len(costs.places) - len(rows)
    table = Table(columns=columns, rows=rows, noun=str(costs.by), hidden=hidden)
    what = "time" if is_timed else "bytes"
    return Section(title=f"Where the {what} went, by {costs.by}", blocks=(table,))


def _both(change: PlaceChange, text: Callable[[Figures], str]) -> str:
    before, after = text(change.before), text(change.after)
    return before if before == after else f"{before} → {after}"


def _outcomes(outcomes: Sequence[OutcomeChange], top: int | None) -> Section:
    total = sum(change.count for change in outcomes)
    entries = [_outcome(rank, change) for rank, change in enumerate(outcomes[:top], 1)]
    return Section(
        title=f"{plural(total, 'pair')} {'ended' if total > 1 else 'that ended'} differently",
        blocks=(ranked("outcome", entries, len(outcomes), ("bytes", "alike")),),
    )


def _outcome(rank: int, change: OutcomeChange) -> Entry:
    before, after = change.before, change.after
    names = before.producer.name, before.consumer.name
    words = f"{before.outcome} → {after.outcome}"
    outcomes = line(words, Tone.BAD if change.is_lost else Tone.GOOD)
    return Entry(
        label=f"{rank}.",
        name=spans((names[0], Tone.STRONG), " -> ", (names[1], Tone.STRONG)),
        figures=(size(max(before.bytes_saved, after.bytes_saved)), _alike(change.count)),
        lines=(outcomes, *map(line, _reasons(change))),
        pairs=((after.producer.name, after.consumer.name),),
    )


def _alike(count: int) -> str:
    return f"x{count:,} alike" if count > 1 else ""


def _memory(memory: MemoryDifference, top: int | None) -> Section:
    entries = [
        Entry(
            label=_signed(buffer.growth),
            name=spans(_value_text(buffer)),
            lines=(line(_cause(buffer), Tone.BAD if buffer.growth > 0 else Tone.GOOD),),
        )
        for buffer in memory.buffers[:top]
    ]
    block = ranked("value", entries, len(memory.buffers))
    return Section(title="Memory", summary=spans(_memory_text(memory)), blocks=(block,))


def _fusions(module: ModuleDifference, top: int | None) -> Section:
    entries = [
        change_entry(fusion, [line(text, Tone.QUIET) for text in _passes_texts(fusion)])
        for fusion in module.fusions[:top]
    ]
    block = ranked("change", entries, len(module.fusions), ("alike",))
    return Section(title="Fusions", summary=spans(_lost_and_gained(module)), blocks=(block,))


def _edits(module: ModuleDifference, top: int | None) -> Section:
    entries = [
        Entry(label=edit.kind, name=spans(_edit_text(edit)), figures=(_alike(edit.count),))
        for edit in module.edits[:top]
    ]
    count = sum(edit.count for edit in module.edits)
    also = f", {module.incidental:,} more go with fusions" if module.incidental else ""
    return Section(
        title="Instructions",
        summary=spans(f"{plural(count, 'edit')}{also}"),
        blocks=(ranked("edit", entries, len(module.edits), ("alike",)),),
    )


def same_lines(difference: Difference) -> list[str]:
    """Return what did not change, and the modules of one side only."""
    same = _same_lines(difference) if difference.same else ()
    return [*same, *_unpaired(difference)]


def _unpaired(difference: Difference) -> Iterator[str]:
    for side, names in (("before", difference.only_before), ("after", difference.only_after)):
        if names:
            yield f"only {side}: {', '.join(names)}"


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


def pass_of(stage: str) -> str:
    """Return ``priority-fusion in fusion`` for a stage's label; the label itself if it names no
    pass.
    """
    pipeline, after, pass_text = stage.partition(".after_")
    if pass_text.startswith("pipeline-start"):
        return f"what runs before {pipeline}"
    return f"{pass_text.partition('.before_')[0]} in {pipeline}" if after else stage


def _divergence_text(divergence: FirstDivergence) -> str:
    same = f"the same up to {pass_of(divergence.last_same)}" if divergence.last_same else ""
    ours, theirs = divergence.stage_before, divergence.stage_after
    if ours and theirs and pass_of(ours) == pass_of(theirs):
        first = f"{pass_of(ours)} produced different results"
    elif ours and theirs:
        first = f"then {pass_of(ours)} changed only the first, {pass_of(theirs)} only the second"
    elif ours or theirs:
        side = "first" if ours else "second"
        first = f"then {pass_of(ours or theirs or '')} changed only the {side}"
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
            stage = f", since {pass_of(pair.stage)}" if pair.stage else ""
            yield f"{name}: in {pair.kernel}{stage}"


def _passes_texts(change: FusionDifference) -> Iterator[str]:
    before, after = (", ".join(passes) for passes in (change.passes.before, change.passes.after))
    if before and after and before != after:
        yield f"made by {before} before, by {after} after"
    elif before or after:
        yield f"made by {before or after}"


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
