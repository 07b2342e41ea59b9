"""An explanation as JSON, as Markdown, and on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum
from typing import TYPE_CHECKING, Any

from fusionscope.dump.length import Length
from fusionscope.findings.autotuned import sheet as autotuned
from fusionscope.findings.breakdown import sheet as breakdown
from fusionscope.findings.compile_time import sheet as compile_time
from fusionscope.findings.libraries import sheet as boundaries
from fusionscope.findings.measured import sheet as measured
from fusionscope.findings.memory import sheet as memory
from fusionscope.findings.movements import sheet as movements
from fusionscope.findings.recomputed import sheet as recomputed
from fusionscope.findings.resources import sheet as resources
from fusionscope.findings.suggestions import sheet as suggestions
from fusionscope.report import kernel_pages, rules_used
from fusionscope.report.refusals import why
from fusionscope.words.text import (
    cell,
    code,
    counted,
    duration,
    file_and_line,
    percent_change,
    plural,
    safe,
    shorten,
    size,
)

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.facts.result import (
        ChangedKernel,
        ChangedPair,
        CostFacts,
        Explanation,
        ModuleFacts,
        PairFacts,
        Refusals,
        TimeEstimate,
        WhatIf,
    )
    from fusionscope.findings.suggestions.facts import Figures


_SHOWN_SHARE = 0.01  # the smallest share of a loss that is shown


_LOOPS = 3  # the most loops that a line names
_NAMED = 3  # the most kernels of a list on one line


def _cost_lines(cost: CostFacts) -> Iterator[str]:
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


def _heading(module: ModuleFacts) -> str:
    target = module.device or {"cpu": "CPU", "gpu": "GPU", "tpu": "TPU"}.get(module.backend or "")
    heading = f"{module.name} on {target or 'an unknown backend'}"
    if module.rules is not None:
        heading += f", {module.rules.version}"
    return safe(heading)


def _times(
    before: TimeEstimate | None,
    after: TimeEstimate | None,
    *,
    between: str = ", ",
    bold: str = "",
) -> str:
    """Return the estimated times, if there are any; a library call counts with a lower bound."""
    if before is None or after is None:
        return ""
    then, now = (
        f"{'≥ ' if each.floor_launches else ''}{duration(each.microseconds)}"
        for each in (before, after)
    )
    return f"{between}time {then} → {bold}{now}{bold}"


def _outcomes(module: ModuleFacts) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in module.outcomes.items() if count)


def _places(pair: PairFacts) -> str:
    places = dict.fromkeys(place for place in (pair.producer.source, pair.consumer.source) if place)
    return " -> ".join(places) or "source line unknown"


def to_markdown(
    explanation: Explanation, *, top: int | None, pairs: bool, depth: int | None = None
) -> str:
    """Yield headings and tables.

    ``top`` limits every list (None: no limit); ``pairs`` lists the requested pairs instead of the
    costliest refusals. With ``depth``, a tree of that depth shows launches, bytes and time.
    """
    return "\n".join(_markdown(explanation, top, pairs, depth)) + "\n"


def _markdown(
    explanation: Explanation, top: int | None, pairs: bool, depth: int | None
) -> Iterator[str]:
    for module in explanation.modules:
        totals = module.totals
        yield f"## {cell(_heading(module))}\n"
        if module.rules is not None:
            yield f"{cell(rules_used.in_words(module.rules))}\n"
        yield (
            f"Launches {totals.launches_before:,} → **{totals.launches:,}**, bytes moved "
            f"{size(totals.bytes_before)} → **{size(totals.bytes_moved)}**"
            f"{_times(totals.time_before, totals.time, bold='**')}"
            f"{_assumed(module)}; "
            f"pairs: {_outcomes(module) or 'none'}.\n"
        )
        for note in module.notes:
            yield f"> {cell(note)}\n"
        if depth is not None and module.breakdown is not None:
            yield from breakdown.to_markdown(module.breakdown, depth=depth, top=top)
        yield "| kernel | kind | runs | bytes | computes | source |\n|---|---|--:|--:|---|---|"
        for alike in module.heaviest[:top]:
            kernel = alike.example
            alike_too = f" and {alike.count - 1:,} alike" if alike.count > 1 else ""
            yield (
                f"| {code(kernel.name)}{alike_too} | {cell(f'{kernel.kind} {kernel.emitter}')} "
                f"| {kernel.runs:,} | {size(alike.bytes_moved)} | {cell(counted(kernel.members))} "
                f"| {cell(kernel.source or '')} |"
            )
        yield ""
        yield "| producer | consumer | pairs | bytes | why | source | try |"
        yield "|---|---|--:|--:|---|---|---|"
        rows = (
            [(pair, 1, pair.bytes_saved) for pair in module.pairs]
            if pairs
            else [(r.example, r.count, r.bytes_saved) for r in module.refusals]
        )
        for pair, count, saved in rows[:top]:
            known = suggestions.for_refusal(module.suggestions, pair)
            yield (
                f"| {code(pair.producer.name)} {cell(pair.producer.shape)} "
                f"| {code(pair.consumer.name)} {cell(pair.consumer.shape)} | {count} "
                f"| {size(saved)} | {cell(why(pair))} | {cell(_places(pair))} "
                f"| {known if pair.reason else ''} |"
            )
        yield ""
        yield from boundaries.to_markdown(module.boundaries, top)
        yield from movements.to_markdown(module.movements, module.suggestions, top)
        yield from measured.to_markdown(module, top)
        yield from resources.to_markdown(module.kernels, module.over_fused, top)
        yield from recomputed.to_markdown(module, top)
        yield from memory.to_markdown(module, top)
        yield from autotuned.to_markdown(module.autotuned, top)
        yield from compile_time.to_markdown(module.compile_time, top)
        if module.what_if:
            yield from _markdown_what_if(module.what_if, top)
        yield from suggestions.to_markdown(module.suggestions, top)
    if explanation.folded:
        yield f"{plural(len(explanation.folded), 'small module')} not shown.\n"
    for problem in explanation.problems:
        yield f"> {cell(problem)}\n"


def _markdown_what_if(tried: WhatIf, top: int | None) -> Iterator[str]:
    yield f"Tried {cell(tried.changes)}.\n"
    for words in _what_if_lines(tried):
        yield f"- {cell(words)}"
    yield ""
    for note in tried.notes:
        yield f"> {cell(note)}\n"
    yield "| producer | consumer | bytes | change |\n|---|---|--:|---|"
    for pair in tried.pairs[:top]:
        yield (
            f"| {code(pair.producer)} | {code(pair.consumer)} | {size(pair.bytes_between)} "
            f"| {cell(_what_changed(pair))} |"
        )
    yield ""


def print_explanation(
    explanation: Explanation, console: Console, *, top: int | None, pairs: bool
) -> None:
    """Print the whole report to a terminal; parameters as in ``to_markdown``."""
    for module in explanation.modules:
        print_header(module, console, in_full=True)
        if module.breakdown is not None:
            console.print()
            breakdown.print_lines(module.breakdown, console)
        measured.print_measured(module, console, top=top)
        _print_kernels(module, console, top)
        if pairs:
            _print_pairs(module, console, top)
        else:
            _print_refusals(module, console, top)
        boundaries.print_boundaries(module.boundaries, console, top=top)
        movements.print_movements(module.movements, module.suggestions, console, top=top)
        resources.print_resources(module.kernels, module.over_fused, console, top=top)
        recomputed.print_recomputed(module, console, top=top)
        memory.print_memory(module, console, top=top)
        autotuned.print_autotuned(module.autotuned, console, top=top)
        compile_time.print_compile_time(module.compile_time, console, top=top)
        if module.what_if:
            print_what_if(module.what_if, console, top)
        suggestions.print_suggestions(module.suggestions, console, top=top)
        console.print()
    _print_folded(explanation, console)


def print_selected(explanation: Explanation, console: Console, *, top: int | None) -> None:
    """Print the requested pairs."""
    for module in explanation.modules:
        if module.pairs:
            print_header(module, console)
            _print_pairs(module, console, top)
            if module.what_if:
                print_what_if(module.what_if, console, top)
            console.print()


def print_unmatched(explanation: Explanation, words: str, console: Console) -> None:
    """Print that nothing matches the request ``words``, and the nearest names."""
    near = dict.fromkeys(name for module in explanation.modules for name in module.near)
    like = f"; near: {', '.join(near)}" if near else ""
    left = explanation.folded
    more = f"; {plural(len(left), 'module')} not looked at: --all" if left else ""
    console.print(safe(f"nothing matches {words}{like}{more}"), soft_wrap=True)


def print_kernels(explanation: Explanation, console: Console, *, top: int | None) -> None:
    """Print the requested kernels."""
    for module in explanation.modules:
        if module.kernel_pages:
            print_header(module, console)
            console.print()
        for page in module.kernel_pages:
            kernel_pages.print_kernel(page, console, top=top)
            console.print()


def print_breakdowns(
    explanation: Explanation, console: Console, *, depth: int, top: int | None
) -> None:
    """Print the launches, bytes and time of each module by part."""
    for module in explanation.modules:
        print_header(module, console)
        if module.breakdown is not None:
            console.print()
            breakdown.print_tree(module.breakdown, console, depth=depth, top=top)
        console.print()
    _print_folded(explanation, console)


def _print_folded(explanation: Explanation, console: Console) -> None:
    if explanation.folded:
        moved = size(sum(row.bytes_moved for row in explanation.folded))
        console.print(
            f"{plural(len(explanation.folded), 'other module')} folded ({moved} in total): "
            "--all shows all of them, --module NAME shows one"
        )


def print_header(module: ModuleFacts, console: Console, *, in_full: bool = False) -> None:
    """Print what was compiled, and its costs.

    Stages, flags, and the evidence for the version of rules that agree are shown ``in_full`` only.
    """
    from rich.padding import Padding
    from rich.text import Text

    width = console.width
    rules = module.rules
    console.print(Text(_heading(module), style="bold"))
    if in_full and module.pre_fusion:
        stages = f"{module.pre_fusion} → {module.final}"
        console.print(Text(f"  {shorten(stages, width - 2)}", style="dim"))
    if rules is not None:
        in_words = rules_used.in_words(rules)
        words = in_words if in_full or rules.guessed else in_words.partition(";")[0]
        console.print(Padding(Text(safe(words), style=rules_used.style(rules)), (0, 0, 0, 2)))
    if in_full and module.flags:
        flags = f"flags: {' '.join(module.flags)}"
        console.print(Text(f"  {shorten(flags, width - 2)}", style="dim"))
    for note in module.notes:
        console.print(Padding(Text(f"note: {safe(note)}", style="yellow"), (0, 0, 0, 2)))
    _print_totals(module, console)
    if in_full and _outcomes(module):
        console.print(Text(f"  pairs: {_outcomes(module)}"))


def _print_totals(module: ModuleFacts, console: Console) -> None:
    """Print the figures of the final module, and those without any fusion."""
    from rich.padding import Padding
    from rich.text import Text

    totals = module.totals
    rows = [
        [
            word,
            _time(time) if time is not None else "",
            plural(launches, "launch"),
            f"{size(moved)} moved",
        ]
        for word, time, launches, moved in (
            ("", totals.time, totals.launches, totals.bytes_moved),
            ("unfused", totals.time_before, totals.launches_before, totals.bytes_before),
        )
    ]
    if not module.pre_fusion:
        rows.pop()
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    for row in rows:
        cells = [text.rjust(width) for text, width in zip(row, widths, strict=True) if width]
        console.print(Text(f"  {'   '.join(cells)}", style="dim" if row[0] else ""))
    if module.graphs is not None:
        times = "once" if module.graphs.graphs == 1 else f"{module.graphs.graphs:,} times"
        held = f"{module.graphs.launches:,} of {plural(totals.launches, 'launch')}"
        words = f"{held} in CUDA graphs, which the host launches {times}"
        console.print(Text(f"  ({words})", style="dim"))
    if assumed := _assumed(module):
        console.print(Padding(Text(assumed.strip(), style="dim"), (0, 0, 0, 2)))


def _assumed(module: ModuleFacts) -> str:
    """Return what the totals assume, in parentheses after a space; empty if they are exact."""
    bounds = [loop for loop in module.loops if loop.length is Length.BOUND]
    unknown = [loop for loop in module.loops if loop.length is Length.UNKNOWN]
    parts = [f"{safe(loop.name)}: at most {plural(loop.steps, 'step')}" for loop in bounds[:_LOOPS]]
    if len(bounds) > _LOOPS:
        parts.append(f"{len(bounds) - _LOOPS:,} more loops count the most steps that they can take")
    if unknown:
        names = ", ".join(safe(loop.name) for loop in unknown[:_LOOPS])
        more = f" and {len(unknown) - _LOOPS:,} more" if len(unknown) > _LOOPS else ""
        parts.append(f"of unknown length, counted as one step: {names}{more}")
    if bounds or unknown:
        parts[-1] += f"; --steps {safe((bounds or unknown)[0].name)}=N"
    if module.branches:
        parts.append("each branch counts once")
    return f" ({'; '.join(parts)})" if parts and not module.totals.exact else ""


def _time(time: TimeEstimate) -> str:
    """Return an estimate as text; for a library call it is a lower bound."""
    return f"{'at least' if time.floor_launches else 'about'} {duration(time.microseconds)}"


def _table(*columns: tuple[str, bool]) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    for name, is_number in columns:
        table.add_column(
            name, justify="right" if is_number else "left", no_wrap=True, overflow="ellipsis"
        )
    return table


def _print_indented(table: Any, console: Console) -> None:
    from rich.padding import Padding

    console.print(Padding(table, (0, 0, 0, 2)))


def _print_kernels(module: ModuleFacts, console: Console, top: int | None) -> None:
    from rich.text import Text

    console.print(Text("\n  Kernels", style="bold"))
    total = module.totals.bytes_moved or 1
    table = _table(
        ("kind", False), ("kernels", True), ("launches", True), ("bytes", True), ("", True)
    )
    for kind in module.kinds:
        share = f"{100 * kind.bytes_moved / total:.0f}%"
        table.add_row(
            kind.kind, f"{kind.count:,}", f"{kind.launches:,}", size(kind.bytes_moved), share
        )
    _print_indented(table, console)
    if len(module.kernels) < 2:
        return
    console.print()
    table = _table(
        ("heaviest", False), ("", True), ("emitter", False), ("runs", True), ("bytes", True),
        ("computes", False), ("source", False),
    )  # fmt: skip
    table.columns[5].ratio = 1
    table.expand = True
    for alike in module.heaviest[:top]:
        kernel = alike.example
        table.add_row(
            shorten(kernel.name, 30),
            f"x{alike.count:,}" if alike.count > 1 else "",
            shorten(kernel.emitter, 14),
            f"{kernel.runs:,}" if kernel.runs_known else f"{kernel.runs:,}+",
            size(alike.bytes_moved),
            safe(counted(kernel.members)),
            file_and_line(kernel.source),
        )
    _print_indented(table, console)


def _tail(text: str, width: int) -> str:
    """Shorten a path from the left: its end identifies it."""
    text = safe(text)
    return text if len(text) <= width else f"…{text[-width + 1 :]}"


def _print_refusals(module: ModuleFacts, console: Console, top: int | None) -> None:
    from rich.text import Text

    if module.reasons:
        _print_reasons(module, console, top)
    if module.fused_by_later_pass:
        console.print(Text("\n  Refused by one pass, fused by a later one", style="bold"))
        _print_alike(module, module.fused_by_later_pass, console, top)


def _print_reasons(module: ModuleFacts, console: Console, top: int | None) -> None:
    from rich.text import Text

    console.print(Text("\n  Not fused, by reason", style="bold"))
    table = _table(("rule", False), ("pairs", True), ("bytes", True), ("", False))
    for reason in module.reasons[:top]:
        table.add_row(
            reason.reason, f"{reason.count:,}", size(reason.bytes_saved), safe(reason.title)
        )
    _print_indented(table, console)
    console.print(Text("\n  Costliest refusals", style="bold"))
    _print_alike(module, module.refusals, console, top)


def _print_alike(
    module: ModuleFacts, refusals: Sequence[Refusals], console: Console, top: int | None
) -> None:
    from rich.text import Text

    for rank, refusal in enumerate(refusals[:top], 1):
        pair, saved, count = refusal.example, refusal.bytes_saved, refusal.count
        _print_pair(module, pair, console, f"{rank}.", saved, count)
    hidden = len(refusals) - len(refusals[:top])
    if hidden:
        console.print(Text(f"  … and {hidden:,} more kinds of refusals: --top N", style="dim"))


def _print_pairs(module: ModuleFacts, console: Console, top: int | None) -> None:
    from rich.text import Text

    found = plural(len(module.pairs), "pair")
    console.print(Text(f"\n  {found} selected", style="bold"))
    for rank, pair in enumerate(module.pairs[:top], 1):
        _print_pair(module, pair, console, f"{rank}.", pair.bytes_saved, 1)
    hidden = len(module.pairs) - len(module.pairs[:top])
    if hidden > 0:
        console.print(Text(f"  … and {hidden:,} more: --top N", style="dim"))


def _what_if_totals(before: Figures, after: Figures) -> str:
    words = [
        f"launches {before.launches:,} → {after.launches:,}",
        f"bytes moved {size(before.bytes_moved)} → {size(after.bytes_moved)}",
    ]
    if before.time_us and after.time_us is not None:
        times = f"{duration(before.time_us)} → {duration(after.time_us)}"
        words.insert(0, f"time {times} ({percent_change(before.time_us, after.time_us)})")
    return ", ".join(words)


def _what_if_lines(tried: WhatIf) -> Iterator[str]:
    """Yield totals, and the kernels that are gained and lost."""
    replayed = _what_if_totals(tried.before, tried.after)
    final = _what_if_totals(*tried.final) if tried.final is not None else None
    if final != replayed:
        yield f"right after fusion: {replayed}"
    if final is not None:
        yield f"final module: {final}"
    if tried.peak is not None:
        yield f"peak of memory {size(tried.peak[0])} → {size(tried.peak[1])} (estimate)"
    for word, kernels in (("gone", tried.gone), ("new", tried.made)):
        if kernels:
            yield f"{word}: {_kernels(kernels)}"


def _kernels(kernels: Sequence[ChangedKernel]) -> str:
    count = plural(len(kernels), "kernel")
    if any(each.time_us is None for each in kernels):
        return f"{count}, {size(sum(each.bytes_moved for each in kernels))}"
    named = [f"{each.name} {duration(each.time_us or 0)}" for each in kernels[:_NAMED]]
    more = ", …" if len(kernels) > _NAMED else ""
    total = duration(fsum(each.time_us or 0 for each in kernels))
    return f"{count}, {total}: {', '.join(named)}{more}"


def _what_changed(pair: ChangedPair) -> str:
    together = pair.after in ("fused", "duplicated")
    rule = f" ({'was' if together else 'now'} {pair.rule})" if pair.rule else ""
    follows = f", with {pair.follows}" if pair.follows else ""
    return f"{pair.before} → {pair.after}{rule}{follows}"


def print_what_if(tried: WhatIf, console: Console, top: int | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    pairs = plural(len(tried.pairs), "pair")
    console.print(Text(f"\n  Tried {safe(tried.changes)}: {pairs} changed", style="bold"))
    for words in _what_if_lines(tried):
        console.print(Padding(Text(safe(words)), (0, 0, 0, 2)))
    for note in tried.notes:
        console.print(Padding(Text(f"note: {safe(note)}", style="yellow"), (0, 0, 0, 2)))
    for pair in tried.pairs[:top]:
        line = Text(safe(pair.producer), style="bold")
        line.append(" -> ")
        line.append(safe(pair.consumer))
        what = f"  {size(pair.bytes_between)}: {safe(_what_changed(pair))}"
        console.print(Padding(Text.assemble(line, (what, "not bold")), (0, 0, 0, 2)))
    hidden = len(tried.pairs) - len(tried.pairs[:top])
    if hidden > 0:
        console.print(Text(f"  … and {hidden:,} more: --top N", style="dim"))


def _print_pair(
    module: ModuleFacts, pair: PairFacts, console: Console, rank: str, saved: int, count: int
) -> None:
    from rich.padding import Padding
    from rich.text import Text

    repeated = f"  x{count:,} alike" if count > 1 else ""
    line = Text(f"  {rank} ")
    line.append(safe(pair.producer.name), style="bold")
    line.append(" -> ")
    line.append(safe(pair.consumer.name), style="bold")
    line.append(f"  {size(saved)}{repeated}")
    console.print(line)
    shapes = (
        f"{pair.producer.opcode} {pair.producer.shape} -> "
        f"{pair.consumer.opcode} {pair.consumer.shape}"
    )
    details = [
        (shorten(shapes, console.width - 5), "dim"),
        (f"at {_tail(_places(pair), console.width - 8)}", ""),
        (why(pair), "red" if pair.reason else "green"),
    ]
    refusal = pair.fused_by_later_pass or pair
    if refusal.message:
        is_replayed = refusal.evidence in ("re-evaluated", "guess")
        said = "expected message" if is_replayed else "compiler"
        details.append((f"{said}: {refusal.message}", ""))
    if pair.cost is not None:
        details += [(line, "") for line in _cost_lines(pair.cost)]
    elif refusal.numbers:
        details.append((", ".join(f"{name} {value}" for name, value in refusal.numbers), ""))
    known = suggestions.for_refusal(module.suggestions, pair)
    if known and pair.reason:
        details.append((known, "cyan" if known.startswith("try") else "dim"))
    for text, style in details:
        console.print(Padding(Text(safe(text), style=style), (0, 0, 0, 5)))
