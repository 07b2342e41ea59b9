"""An explanation as sections: the first screen, the whole report, and parts of it."""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum
from typing import TYPE_CHECKING

from fusionscope.dump.length import Length
from fusionscope.explain.modules import MODULES_SHOWN
from fusionscope.findings import BRIEF, NAMES, briefs, sheets_of
from fusionscope.findings.breakdown.sheet import tree
from fusionscope.findings.kernels.page import sheets as kernel_sheets
from fusionscope.findings.refusals.sheet import selected_pairs
from fusionscope.verify import rules_in_words
from fusionscope.what_if.sheet import sheet as what_if_sheet
from fusionscope.words.section import Block, Column, Line, Lines, Section, Table, Tone, line, lines
from fusionscope.words.text import duration, first_names, or_dash, plural, program, size

if TYPE_CHECKING:
    from fusionscope.facts.result import Explanation, LoopRow, ModuleFacts, ModuleRow, TimeEstimate

_NAMED_LOOPS = 3  # on one line
_BACKENDS = {"cpu": "CPU", "gpu": "GPU", "tpu": "TPU"}


def screen(explanation: Explanation) -> Iterator[Section]:
    """Yield the overview, and what else can be asked for."""
    yield from overview(explanation)
    yield _more(explanation, explanation.modules[0])


def overview(explanation: Explanation) -> Iterator[Section]:
    """Yield the table of modules if there are several, and the essentials of the first one."""
    if len(explanation.table) > 1:
        yield _modules(explanation.table)
    yield from essentials(explanation.modules[0])


def essentials(module: ModuleFacts) -> Iterator[Section]:
    """Yield what was compiled, its costs, and the first entries of each finding."""
    yield _header(module)
    if module.what_if is not None:
        yield what_if_sheet(module.what_if, BRIEF)
    yield from briefs(module)


def report(explanation: Explanation, top: int | None, *, pairs: bool) -> Iterator[Section]:
    """Yield all sections of all explained modules. ``top`` limits every list (None: no limit);
    ``pairs`` lists pairs one by one instead of the costliest refusals.
    """
    for module in explanation.modules:
        yield _header(module, in_full=True)
        if module.what_if is not None:
            yield what_if_sheet(module.what_if, top)
        for name in NAMES:
            if pairs and name == "refusals":
                yield selected_pairs(module, top)
            else:
                yield from sheets_of((name,), module, top)
    yield from _folded(explanation)


def what_if(explanation: Explanation, top: int | None) -> Iterator[Section]:
    """Yield what changed rules or another device do to each module."""
    for module in explanation.modules:
        yield _header(module)
        if module.what_if is not None:
            yield what_if_sheet(module.what_if, top)
    yield from _folded(explanation)


def selected(explanation: Explanation, top: int | None) -> Iterator[Section]:
    """Yield the requested pairs."""
    for module in explanation.modules:
        if module.pairs:
            yield _header(module)
            yield selected_pairs(module, top)
            if module.what_if is not None:
                yield what_if_sheet(module.what_if, top)


def kernel_pages(explanation: Explanation, top: int | None) -> Iterator[Section]:
    """Yield the requested kernels."""
    for module in explanation.modules:
        if module.kernel_pages:
            yield _header(module)
        for page in module.kernel_pages:
            yield from kernel_sheets(page, top)


def breakdowns(explanation: Explanation, depth: int, top: int | None) -> Iterator[Section]:
    """Yield the launches, bytes and time of each module by part."""
    for module in explanation.modules:
        yield _header(module)
        if module.breakdown is not None:
            yield tree(module.breakdown, depth, top)
    yield from _folded(explanation)


def unmatched(explanation: Explanation, words: str) -> str:
    """Return that nothing matches the request ``words``, and the nearest names."""
    near = dict.fromkeys(name for module in explanation.modules for name in module.near)
    like = f"; near: {', '.join(near)}" if near else ""
    hidden = len(explanation.folded)
    more = f"; {plural(hidden, 'module')} not looked at: --all" if hidden else ""
    return f"nothing matches {words}{like}{more}"


def _folded(explanation: Explanation) -> Iterator[Section]:
    if explanation.folded:
        moved = size(sum(row.bytes_moved for row in explanation.folded))
        yield _paragraph(
            f"{plural(len(explanation.folded), 'other module')} folded ({moved} in total): "
            "--all shows all of them, --module NAME shows one"
        )


def _paragraph(text: str, tone: Tone = Tone.PLAIN) -> Section:
    return Section(blocks=(lines([text], tone),))


def _more(explanation: Explanation, module: ModuleFacts) -> Section:
    options = ["--top 10 for the whole report", "--by scope|stack|file|kind", "--kernel NAME"]
    if module.alike.refusals:
        options.append("--pair 'P -> C'")
    if len(explanation.table) > 1:
        options.append("--module NAME or number")
    return _paragraph(f"More: {', '.join(options)}", Tone.QUIET)


def _header(module: ModuleFacts, *, in_full: bool = False) -> Section:
    """Return what was compiled, and its costs.

    Stages, flags, and the evidence for the version of rules that agree are shown ``in_full`` only.
    """
    blocks: list[Block] = [_compilation(module, in_full=in_full), _totals(module)]
    blocks.append(lines(_remarks(module), Tone.QUIET))
    if in_full and (outcomes := _outcomes(module)):
        blocks.append(lines([f"pairs: {outcomes}"]))
    return Section(title=_heading(module), blocks=tuple(blocks), is_heading=True)


def _heading(module: ModuleFacts) -> str:
    device = module.device or _BACKENDS.get(module.backend or "") or "an unknown backend"
    version = f", {module.rules.version}" if module.rules is not None else ""
    return f"{program(module.name)} on {device}{version}"


def _outcomes(module: ModuleFacts) -> str:
    return ", ".join(
        f"{count:,} {outcome}" for outcome, count in module.summary.outcomes.items() if count
    )


def _compilation(module: ModuleFacts, *, in_full: bool) -> Block:
    """Return the stages, the rules, the flags, and notes."""
    texts: list[Line] = []
    if in_full and module.stages.pre_fusion:
        stages = f"{module.stages.pre_fusion} → {module.stages.final}"
        texts.append(line(stages, Tone.QUIET, is_cut=True))
    if module.rules is not None:
        words = rules_in_words.in_words(module.rules)
        is_guess = bool(module.rules.guessed)
        words = words if in_full or is_guess else words.partition(";")[0]
        texts.append(line(words, Tone.WARNING if is_guess else Tone.QUIET))
    if in_full and module.flags:
        texts.append(line(f"flags: {' '.join(module.flags)}", Tone.QUIET, is_cut=True))
    texts += lines((f"note: {note}" for note in module.notes), Tone.WARNING).lines
    return Lines(tuple(texts))


def _totals(module: ModuleFacts) -> Table:
    """Return the figures of the final module, and those without any fusion."""
    totals, relation = module.summary, module.relation
    rows = [
        _total("", totals.time, relation, totals.launches, totals.bytes_moved),
        _total(
            "unfused", totals.time_before, relation, totals.launches_before, totals.bytes_before
        ),
    ]
    columns = tuple(Column(title, is_number=True) for title in ("", "time", "launches", "bytes"))
    return Table(
        columns=columns, rows=tuple(rows if module.stages.pre_fusion else rows[:1]), has_head=False
    )


def _total(
    title: str, time: TimeEstimate | None, relation: str, launches: int, bytes_moved: int
) -> tuple[str, ...]:
    return (
        title,
        _time(time, relation) if time is not None else "",
        plural(launches, "launch"),
        f"{size(bytes_moved)} moved",
    )


def _time(time: TimeEstimate, relation: str) -> str:
    """Return an estimate as text. For a library call it is a lower bound, for a loop that counts
    the most steps that it can take an upper one.
    """
    word = {"": "about", "≤": "at most", "≥": "at least", "≈": "about"}[relation]
    if time.floor_launches:
        word = "at least" if relation in ("", "≥") else "about"
    return f"{word} {duration(time.microseconds)}"


def _remarks(module: ModuleFacts) -> Iterator[str]:
    """Yield what the totals count, and what they assume."""
    if module.graphs is not None:
        times = "once" if module.graphs.graphs == 1 else f"{module.graphs.graphs:,} times"
        launches = plural(module.summary.launches, "launch")
        inside = f"{module.graphs.launches:,} of {launches}"
        yield f"({inside} in CUDA graphs, which the host launches {times})"
    if module.backend == "tpu" and module.summary.time is not None:
        yield _estimated(module.summary.time.floor_launches, module.summary.launches)
    if not module.summary.exact:
        assumptions = "; ".join(_assumptions(module))
        if assumptions:
            yield f"({assumptions})"


def _estimated(floors: int, launches: int) -> str:
    remainder = f"; {floors:,} of {plural(launches, 'launch')} as the least that its bytes take"
    return f"(times as the compiler estimates them{remainder if floors else ''})"


def _assumptions(module: ModuleFacts) -> Iterator[str]:
    bounds = [loop for loop in module.loops if loop.length is Length.BOUND]
    unknown = [loop for loop in module.loops if loop.length is Length.UNKNOWN]
    yield from _bounds(bounds)
    if unknown:
        names = first_names([loop.name for loop in unknown], _NAMED_LOOPS)
        yield f"of unknown length, counted as one step: {names}"
    if bounds or unknown:
        yield f"--steps {(bounds or unknown)[0].name}=N"
    if module.summary.branches:
        yield "each branch counts once"


def _bounds(loops: list[LoopRow]) -> Iterator[str]:
    for loop in loops[:_NAMED_LOOPS]:
        yield f"{loop.name}: at most {plural(loop.steps, 'step')}"
    if len(loops) > _NAMED_LOOPS:
        more = len(loops) - _NAMED_LOOPS
        yield f"{more:,} more loops count the most steps that they can take"


def _modules(table: tuple[ModuleRow, ...]) -> Section:
    """Return a table of modules, with their devices if these differ."""
    users = [row for row in table if not row.is_helper]
    rows_shown = users[:MODULES_SHOWN] or list(table[:MODULES_SHOWN])
    rows: list[tuple[str, ...]] = [
        (f"{program(row.name)}  ({row.number})", row.device, *_figures(row)) for row in rows_shown
    ]
    remaining = [row for row in table if row not in rows_shown]
    if remaining:
        rows.append(_rest(remaining))
    names_devices = len({row.device for row in table}) > 1
    titles = (plural(len(table), "module"), "device", "time", "launches", "bytes", "not fused")
    places = [place for place in range(len(titles)) if names_devices or place != 1]
    columns = (Column(titles[place], place > 0, place == 0) for place in places)
    return Section(
        blocks=(
            Table(
                columns=tuple(columns),
                rows=tuple(tuple(row[place] for place in places) for row in rows),
                noun="module",
            ),
        ),
        is_heading=True,
    )


def _rest(rows: list[ModuleRow]) -> tuple[str, ...]:
    helpers = sum(row.is_helper for row in rows)
    words = (
        plural(helpers, "helper of JAX", "helpers of JAX")
        if helpers == len(rows)
        else plural(len(rows), "other")
    )
    return (
        words,
        "",
        or_dash(fsum(row.time_us or 0 for row in rows), duration),
        f"{sum(row.launches for row in rows):,}",
        or_dash(sum(row.bytes_moved for row in rows), size),
        "",
    )


def _figures(row: ModuleRow) -> tuple[str, str, str, str]:
    """Return time, launches, bytes and refused bytes; nothing for one that is unknown."""
    return (
        duration(row.time_us) if row.time_us is not None else "",
        f"{row.launches:,}",
        or_dash(row.bytes_moved, size),
        or_dash(row.refused_bytes, size) if row.refused_bytes is not None else "",
    )
