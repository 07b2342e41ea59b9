"""Turns a dump into an explanation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches

from fusionscope.dump import Dump, DumpedModule
from fusionscope.errors import UnusableInput, quoted
from fusionscope.explain.analyze import analyze, movements_of, try_changes
from fusionscope.explain.modules import rank, weight
from fusionscope.explain.result import Explanation, ModuleFacts, ModuleRow
from fusionscope.explain.selection import EVERYTHING, Selection
from fusionscope.explain.suggestion import Suggestions
from fusionscope.explain.view import view
from fusionscope.progress import Progress, each_of, silent
from fusionscope.rules.messages import rule_ids

Suggest = Callable[[DumpedModule, ModuleFacts, float, Progress], Suggestions]

# Of many modules, those are explained that make up this share of the total.
_SHARE = 0.9


def explain(
    dump: Dump,
    selection: Selection = EVERYTHING,
    *,
    progress: Progress = silent,
    suggest: Suggest | None = None,
) -> Explanation:
    """Explain the costliest modules of ``dump``, or those that ``selection`` names.

    ``suggest`` is called with an analyzed module to find what could help, and with the processor
    time of the analysis in seconds. Raises ``UnusableInput`` if nothing can be explained. An
    unreadable file beside readable ones is a problem in the result.
    """
    _check_reason(selection.reason)
    ranked, problems = rank(dump, selection.module, progress=progress)
    count_all = len(ranked) + len(problems)
    rows = [row for row, _ in ranked]
    count = len(ranked) if selection.all_modules else _count_costliest(rows, selection.most_modules)
    explained: dict[int, ModuleFacts] = {}
    chosen = list(enumerate(module for _, module in ranked[:count]))
    for (place, module), own_progress in each_of(chosen, lambda each: each[1].name, progress):
        try:
            explained[place] = explain_module(module, selection, suggest, progress=own_progress)
        except UnusableInput as error:
            problems.append(str(error))
    told = [note for each in explained.values() for note in each.notes]
    problems += dump.untold([*problems, *told])
    if not explained:
        if count_all == 1:
            raise UnusableInput(problems[0])
        raise UnusableInput(
            f"none of {count_all} modules can be read; the first: {problems[0]}",
            file=str(dump.path),
        )
    for place, facts in explained.items():
        rows[place] = _with_figures(rows[place], facts)
    return Explanation(
        str(dump.path),
        tuple(explained.values()),
        tuple(row for place, row in enumerate(rows) if place not in explained),
        tuple(problems),
        tuple(rows),
    )


def explain_module(
    module: DumpedModule,
    selection: Selection = EVERYTHING,
    suggest: Suggest | None = None,
    *,
    progress: Progress = silent,
) -> ModuleFacts:
    """Explain one module; ``suggest`` is as for ``explain``. Raises ``UnusableInput`` if its final
    stage cannot be read, or if the requested changes cannot be tried.
    """
    begin = time.process_time()
    analysis = analyze(
        module,
        rules=selection.rules,
        device=selection.device,
        prices_all=selection.all_modules,
        progress=progress,
    )
    seconds = time.process_time() - begin
    facts = view(analysis, selection)
    notes = list(facts.notes)
    facts = replace(facts, what_if=try_changes(module, selection, notes, progress))
    if selection.movements:
        facts = replace(facts, movements=movements_of(module, facts.kernels, notes, progress))
    if suggest is not None:
        tried = suggest(module, analysis.facts, seconds, progress)
        if selection.picks_pairs:
            tried = tried.about(frozenset((p.producer.name, p.consumer.name) for p in facts.pairs))
        facts = replace(facts, suggestions=tried)
    return replace(facts, notes=tuple(notes))


def _with_figures(row: ModuleRow, facts: ModuleFacts) -> ModuleRow:
    """A row of the table, with the findings about the module."""
    totals = facts.totals
    return replace(
        row,
        launches=totals.launches,
        bytes_moved=totals.bytes_moved,
        time_us=totals.time.microseconds if totals.time is not None else None,
        refused_bytes=sum(reason.bytes_saved for reason in facts.reasons),
    )


def _check_reason(reason: str | None) -> None:
    """Raise ``UnusableInput`` if ``reason`` is not the id of a rule."""
    if reason is not None and reason not in rule_ids():
        close = get_close_matches(reason, rule_ids(), 3, 0.4)
        raise UnusableInput(
            f"there is no reason {quoted(reason)}, expected a rule id such as "
            f"{', '.join(close or sorted(rule_ids())[:3])}"
        )


def _count_costliest(rows: Sequence[ModuleRow], most: int) -> int:
    """Return how many modules to explain, given their figures in descending order. Helpers of JAX
    count only if there is nothing else.
    """
    own = [row for row in rows if not row.is_helper] or rows
    by_time = all(row.time_us is not None for row in own)
    costs = [weight(row, by_time=by_time) for row in own]
    total, moved, count = sum(costs), 0.0, 0
    while count < min(len(costs), most) and (count == 0 or moved < _SHARE * total):
        moved += costs[count]
        count += 1
    return count
