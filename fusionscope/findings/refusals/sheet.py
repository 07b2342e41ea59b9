"""Refused pairs in words: by reason, the costliest, and pairs one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.findings import BRIEF
from fusionscope.findings.collectives.facts import Collective, CollectiveCause
from fusionscope.findings.suggestions.sheet import for_refusal
from fusionscope.reasons.why import why
from fusionscope.words.section import (
    Column,
    Entry,
    Line,
    Lines,
    Section,
    Span,
    Table,
    Tone,
    command,
    line,
    ranked,
    spans,
)
from fusionscope.words.text import duration, file_and_line, plural, size

if TYPE_CHECKING:
    from fusionscope.facts.result import CostFacts, ModuleFacts, PairFacts, Refusals
    from fusionscope.facts.suggestions import Suggestions

_SHOWN_SHARE = 0.01  # the smallest share of a loss that is shown
_REASONS = (
    Column("rule"),
    Column("pairs", is_number=True),
    Column("bytes", is_number=True),
    Column("", is_flexible=True),
)


def brief(module: ModuleFacts) -> Iterator[Section]:
    """Yield the costliest refusals."""
    refusals = module.alike.refusals[:BRIEF]
    if not refusals:
        return
    total = sum(reason.bytes_saved for reason in module.summary.reasons.values())
    pairs = sum(reason.pairs for reason in module.summary.reasons.values())
    entries = [_brief_entry(module, refusal) for refusal in refusals]
    yield Section(
        title="Costliest refusals",
        summary=spans((f"of {plural(pairs, 'pair')}, {size(total)}", Tone.QUIET)),
        blocks=(ranked("pair", entries, len(entries), ("alike", "source")),),
    )


def sheet(module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the reasons, the costliest refusals, and those of a pass before the one that fused the
    pair.
    """
    if module.summary.reasons:
        rows = tuple(
            (name, f"{reason.pairs:,}", size(reason.bytes_saved), reason.title)
            for name, reason in [*module.summary.reasons.items()][:top]
        )
        yield Section(
            title="Not fused, by reason", blocks=(Table(columns=_REASONS, rows=rows, noun="rule"),)
        )
        yield _alike(module, "Costliest refusals", module.alike.refusals, top)
    if module.alike.fused_by_later_pass:
        title = "Refused by one pass, fused by a later one"
        yield _alike(module, title, module.alike.fused_by_later_pass, top)


def selected_pairs(module: ModuleFacts, top: int | None) -> Section:
    """Return the selected pairs, one by one."""
    entries = [
        _entry(module, rank, pair, pair.bytes_saved, 1)
        for rank, pair in enumerate(module.pairs[:top], 1)
    ]
    return Section(
        title=f"{plural(len(module.pairs), 'pair')} selected",
        blocks=(ranked("pair", entries, len(module.pairs), ("bytes", "alike")),),
    )


def pair_sheet(pair: PairFacts) -> Section:
    """Return a pair by itself, without what was tried for it."""
    return Section(
        title=f"{pair.producer.name} -> {pair.consumer.name}",
        summary=spans(f"{pair.outcome}, {size(pair.bytes_saved)}"),
        blocks=(Lines(tuple(_details(None, pair))),),
        is_heading=True,
    )


def _alike(
    module: ModuleFacts, title: str, refusals: Sequence[Refusals], top: int | None
) -> Section:
    entries = [
        _entry(module, rank, refusal.example, refusal.bytes_saved, refusal.count)
        for rank, refusal in enumerate(refusals[:top], 1)
    ]
    block = ranked("refusal", entries, len(refusals), ("bytes", "alike"))
    return Section(title=title, blocks=(block,))


def _brief_entry(module: ModuleFacts, refusal: Refusals) -> Entry:
    pair = refusal.example
    lost = pair.cost.fused_us - pair.cost.unfused_us if pair.cost is not None else 0
    loss = f"; {duration(lost)} slower" if lost > 0 else ""
    advice = for_refusal(module.suggestions, pair, in_full=False)
    if pair.reason == "never-collective" and advice.startswith("nothing"):
        advice = _cause_of_collectives(module) or advice
    return Entry(
        label=size(refusal.bytes_saved),
        name=spans(f"{pair.producer.name} -> {pair.consumer.name}"),
        figures=(
            f"x{refusal.count:,}" if refusal.count > 1 else "",
            file_and_line(pair.producer.source or pair.consumer.source),
        ),
        lines=(
            Line(
                spans=spans(
                    (f"{why(pair)}{loss}", Tone.BAD), (f"; {advice}" if advice else "", Tone.HINT)
                )
            ),
        ),
        pairs=((pair.producer.name, pair.consumer.name),),
        is_cut=True,
    )


def _cause_of_collectives(module: ModuleFacts) -> str:
    """Return where to read why devices send each other data; empty if that is not known."""
    causes = {collective.cause for collective in module.find_all(Collective)}
    return "Collectives says what causes it" if causes - {CollectiveCause.UNKNOWN} else ""


def _entry(module: ModuleFacts, rank: int, pair: PairFacts, saved: int, count: int) -> Entry:
    producer, consumer = pair.producer.name, pair.consumer.name
    return Entry(
        label=f"{rank}.",
        name=spans((producer, Tone.STRONG), " -> ", (consumer, Tone.STRONG)),
        figures=(size(saved), f"x{count:,} alike" if count > 1 else ""),
        lines=tuple(_details(module.suggestions, pair)),
        pairs=((producer, consumer),),
    )


def _details(suggestions: Suggestions | None, pair: PairFacts) -> Iterator[Line]:
    producer, consumer = pair.producer, pair.consumer
    shapes = f"{producer.opcode} {producer.shape} -> {consumer.opcode} {consumer.shape}"
    yield line(shapes, Tone.QUIET, is_cut=True)
    yield Line(spans=(Span("at "), Span(_places(pair), is_flexible=True)), is_cut=True)
    yield line(why(pair), Tone.BAD if pair.reason else Tone.GOOD)
    refusal = pair.fused_by_later_pass or pair
    if refusal.message:
        is_replayed = refusal.evidence in ("re-evaluated", "guess")
        yield line(f"{'expected message' if is_replayed else 'compiler'}: {refusal.message}")
    if pair.cost is not None:
        yield from map(line, _costs(pair.cost))
    elif refusal.numbers:
        yield line(", ".join(f"{name} {value}" for name, value in refusal.numbers))
    advice = for_refusal(suggestions, pair) if pair.reason else ""
    if advice:
        yield line(advice, Tone.HINT if advice.startswith("try") else Tone.QUIET)
    if advice.startswith("nothing") and suggestions is not None and suggestions.draw:
        ends = producer.name, consumer.name
        if suggestions.sketched is not None and ends not in suggestions.sketched:
            return
        names = " -> ".join(ends)
        yield line("one kernel to write by hand, and a start for it:")
        yield command([*suggestions.draw, names, "--kernel-sketch"])


def _places(pair: PairFacts) -> str:
    places = dict.fromkeys(place for place in (pair.producer.source, pair.consumer.source) if place)
    return " -> ".join(places) or "source line unknown"


def _costs(cost: CostFacts) -> Iterator[str]:
    """Yield the two times, their terms, then the parts of each kernel's time."""
    tie = ": a near tie" if cost.near_tie else ""
    yield (
        f"estimated {cost.fused_us:,.6g} us fused into {plural(cost.consumers, 'consumer')}, "
        f"{cost.unfused_us:,.6g} us as it is ({cost.launch_us:g} us of it for each launch){tie}"
    )
    yield f"{'as it is':>12} {'fused':>10}"
    yield f"{cost.producer_us:>12,.3f} {'-':>10}  {cost.kernels[0].name}, the producer"
    for share in cost.shares:
        name = share.name or plural(share.consumers, "other consumer")
        part = f": {100 * share.share:.0f}% of the loss" if share.share >= _SHOWN_SHARE else ""
        yield f"{share.unfused_us:>12,.3f} {share.fused_us:>10,.3f}  {name}{part}"
    for kernel in cost.kernels:
        yield (
            f"{kernel.name}: {kernel.total_us:,.4g} us = compute {kernel.compute_us:,.4g}, "
            f"read {kernel.read_us:,.4g} ({size(kernel.bytes_read)}), "
            f"write {kernel.write_us:,.4g} ({size(kernel.bytes_written)}), overlapping; "
            f"{kernel.blocks:,} x {plural(kernel.threads, 'thread')}"
        )
