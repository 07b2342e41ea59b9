"""Turns a dump into an explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from math import fsum
from typing import TYPE_CHECKING

import msgspec

from fusionscope.dump import Dump, DumpedModule, NewFacts
from fusionscope.dump.cache import DumpCache
from fusionscope.errors import UnusableInput, quoted
from fusionscope.explain.cached_analysis import cached_type, from_cache, to_cache
from fusionscope.explain.modules import MODULES_SHOWN, rank, weight
from fusionscope.explain.selection import EVERYTHING, Selection
from fusionscope.explain.view import view, with_resources
from fusionscope.facts.module_analysis import Analysis, RefusedBytes, TriedChanges
from fusionscope.facts.result import BoundSource, Explanation, ModuleFacts, ModuleRow
from fusionscope.facts.suggestions import Suggestions
from fusionscope.findings.measured.facts import Measured
from fusionscope.findings.movements.facts import Movement, Movements
from fusionscope.findings.resources.facts import ABOUT, Resources
from fusionscope.findings.run.facts import Run
from fusionscope.progress import Progress, silent
from fusionscope.system.workers import in_order

if TYPE_CHECKING:
    from fusionscope.dump.profile import Profile

Suggest = Callable[[DumpedModule, ModuleFacts, Progress], Suggestions]
CompileResources = Callable[[DumpedModule, ModuleFacts, Resources, Progress], Resources]
TimeRun = Callable[[DumpedModule, float, Progress], Run]

# Of many modules, those are explained that make up this share of the total.
_SHARE = 0.9


def explain(
    dump: Dump,
    selection: Selection = EVERYTHING,
    *,
    jobs: int = 1,
    progress: Progress = silent,
    suggest: Suggest | None = None,
    compile_resources: CompileResources | None = None,
    time_run: TimeRun | None = None,
    cache: DumpCache | None = None,
) -> Explanation:
    """Explain the costliest modules of ``dump``, or those that ``selection`` names.

    ``suggest`` is called with an analyzed module to find what could help. ``compile_resources`` is
    called with what the kernels take of a GPU, if ``selection`` requests that, to find out more by
    compiling, and ``time_run`` with a module for a CPU and the bytes that a run must move. What
    ``cache`` has is not computed again; what ``suggest`` returns then has to depend only on the
    rules and the device of ``selection``, and on whether it is ``in_full``. Up to ``jobs``
    processes work at once, each on one module, for which the functions are pickled. Raises
    ``UnusableInput`` if nothing can be explained. An unreadable file beside readable ones is a
    problem in the result.
    """
    _check_reason(selection.reason)
    cache = cache or DumpCache(dump, None)
    ranked, problems = rank(dump, selection.module, cache, progress=progress)
    count_all = len(ranked) + len(problems)
    measured = len(ranked)
    if selection.profile is not None:
        ranked, measured = _measured_first(ranked, selection.profile)
    rows = [row for row, _ in ranked]
    count = len(ranked)
    if not selection.all_modules:
        count = _count_costliest(rows[:measured], selection.most_modules)
    explained: dict[int, ModuleFacts] = {}
    places = [dump.modules.index(module) for _, module in ranked[:count]]
    work = partial(_explain_place, dump, selection, suggest, compile_resources, time_run, cache)
    names = partial(_name_of, dump)
    results = in_order(work, places, names, jobs=jobs, progress=progress)
    for place, outcome in enumerate(results):
        if isinstance(outcome, UnusableInput):
            problems.append(str(outcome))
            continue
        facts, learned = outcome
        dump.learn(learned)
        if isinstance(facts, UnusableInput):
            problems.append(str(facts))
        else:
            explained[place] = facts
    notes_told = [note for module_facts in explained.values() for note in module_facts.notes]
    problems += dump.unreported_problems([*problems, *notes_told])
    if not explained:
        if count_all == 1:
            raise UnusableInput(problems[0])
        raise UnusableInput(
            f"none of {count_all} modules can be read; the first: {problems[0]}",
            file=str(dump.path),
        )
    _check_loops(dump.steps, explained.values())
    for place, (row, module) in enumerate(ranked):
        if place in explained:
            rows[place] = _with_figures(row, explained[place])
        elif place < MODULES_SHOWN and not row.is_helper:
            rows[place] = _with_refused_bytes(row, module, cache)
    return Explanation(
        str(dump.path),
        tuple(explained.values()),
        tuple(row for place, row in enumerate(rows) if place not in explained),
        tuple(problems),
        tuple(rows),
    )


def _measured_first(
    ranked: Sequence[tuple[ModuleRow, DumpedModule]], profile: Profile
) -> tuple[list[tuple[ModuleRow, DumpedModule]], int]:
    """Return the same modules, those first that ``profile`` has, by their time in it, and how many
    these are. Raises ``UnusableInput`` if it has none.
    """
    from fusionscope.findings.measured.find import find_runs  # rarely requested

    measured, unmeasured, problems = [], [], []
    for row, module in ranked:
        try:
            time_us = find_runs(module, profile).time_us
            measured.append((replace(row, time_us=time_us, is_helper=False), module))
        except UnusableInput as problem:
            problems.append(problem)
            unmeasured.append((row, module))
    if not measured:
        raise problems[0]
    return [
        *sorted(measured, key=lambda row_and_module: -(row_and_module[0].time_us or 0.0)),
        *unmeasured,
    ], len(measured)


def _name_of(dump: Dump, place: int) -> str:
    return dump.modules[place].name


def _explain_place(
    dump: Dump,
    selection: Selection,
    suggest: Suggest | None,
    compile_resources: CompileResources | None,
    time_run: TimeRun | None,
    cache: DumpCache,
    place: int,
    progress: Progress,
) -> tuple[ModuleFacts | UnusableInput, NewFacts]:
    """Return the facts about a module, or why there are none, and what reading it has shown."""
    facts: ModuleFacts | UnusableInput
    try:
        facts = _explain_module(
            dump.modules[place], selection, suggest, compile_resources, time_run, cache, progress
        )
        if facts.suggestions is not None:
            module = dump.modules[place]
            which = ("--module", _selector(dump, module)) if len(dump.modules) > 1 else ()
            rerun, draw = (
                ("fusionscope", name, str(dump.path), *which) for name in ("rerun", "draw")
            )
            facts = replace(facts, suggestions=facts.suggestions.with_commands(rerun, draw))
    except UnusableInput as error:
        facts = error
    return facts, dump.learned()


def _selector(dump: Dump, module: DumpedModule) -> str:
    """Return what selects one module: its run if it has several, or else its number if no other
    module, as one for another platform, has that, too.
    """
    if module.run is not None:
        return module.run
    numbers = [candidate.number for candidate in dump.modules]
    return str(module.number) if numbers.count(module.number) == 1 else module.name


def explain_module(module: DumpedModule, *, progress: Progress = silent) -> ModuleFacts:
    """Explain all of one module. Raises ``UnusableInput`` if its final stage cannot be read."""
    return view(_analyze(module, EVERYTHING, progress), EVERYTHING)


def _explain_module(
    module: DumpedModule,
    selection: Selection,
    suggest: Suggest | None,
    compile_resources: CompileResources | None,
    time_run: TimeRun | None,
    cache: DumpCache,
    progress: Progress,
) -> ModuleFacts:
    """Raises ``UnusableInput`` for a damaged final stage, or changes that cannot be tried."""
    steps = tuple(sorted(module.steps.items()))
    options = selection.rules, selection.device, selection.in_full, steps
    analysis = from_cache(
        cache.get(
            module,
            cached_type(),
            options,
            lambda: to_cache(_analyze(module, selection, progress)),
        )
    )
    notes = dict.fromkeys(analysis.facts.notes)
    if selection.profile is not None:
        try:
            analysis = _measured(module, analysis, selection.profile)
        except UnusableInput as problem:  # there is another module that it fits
            notes[str(problem)] = None
    if selection.resources:
        compiled_resources = _resources(module, selection, cache, progress)
        if compile_resources is not None:
            compiled_resources = compile_resources(
                module, analysis.facts, compiled_resources, progress
            )
        notes.update(dict.fromkeys(compiled_resources.notes))
        analysis = replace(analysis, facts=with_resources(analysis.facts, compiled_resources))
    facts = view(analysis, selection)
    if time_run is not None and module.backend == "cpu":
        try:
            facts = _with_run(module, facts, time_run, progress)
        except UnusableInput as problem:
            notes[f"not timed: {problem}"] = None
    if selection.changes or selection.device is not None:
        trial = cache.get(
            module,
            TriedChanges,
            (selection.rules, selection.device, selection.changes, steps),
            lambda: _try_changes(module, selection, analysis, progress),
        )
        notes.update(dict.fromkeys(trial.notes))
        facts = replace(facts, what_if=trial.what_if)
    if selection.movements:
        moved = cache.get(
            module, Movements, options, lambda: _movements(module, analysis, progress)
        )
        notes.update(dict.fromkeys(moved.notes))
        facts = facts.with_finding(Movement, moved.found)
    if suggest is not None:
        suggestions = cache.get(
            module,
            Suggestions,
            (*options, selection.compiler),
            lambda: suggest(module, analysis.facts, progress),
        )
        if selection.picks_pairs:
            suggestions = suggestions.about(
                frozenset((p.producer.name, p.consumer.name) for p in facts.pairs)
            )
        facts = replace(facts, suggestions=suggestions)
    return replace(facts, notes=tuple(notes))


# What these import takes longer than to show what an earlier run has found.


def _analyze(module: DumpedModule, selection: Selection, progress: Progress) -> Analysis:
    from fusionscope.explain.analyze_module import analyze_module

    return analyze_module(
        module,
        rules=selection.rules,
        device=selection.device,
        prices_all=selection.in_full,
        progress=progress,
    )


def _try_changes(
    module: DumpedModule, selection: Selection, analysis: Analysis, progress: Progress
) -> TriedChanges:
    from fusionscope.explain.analyze_module import try_changes

    return try_changes(module, selection, analysis, progress)


def _movements(module: DumpedModule, analysis: Analysis, progress: Progress) -> Movements:
    from fusionscope.explain.analyze_module import movements_of

    return movements_of(module, analysis.facts.kernels, progress)


def _with_run(
    module: DumpedModule, facts: ModuleFacts, time_run: TimeRun, progress: Progress
) -> ModuleFacts:
    from fusionscope.explain.analyze_module import needed_bytes_of

    needed_bytes = needed_bytes_of(module)
    if not needed_bytes:
        return facts
    progress("timing a run")
    run = time_run(module, needed_bytes, progress)
    summary = msgspec.structs.replace(
        facts.summary, at_best_us=run.at_best_us, at_best_from=BoundSource.MEASURED
    )
    return replace(facts, summary=summary).with_finding(Run, run)


def _measured(module: DumpedModule, analysis: Analysis, profile: Profile) -> Analysis:
    from fusionscope.findings.measured.find import find_runs, with_measured

    return with_measured(analysis, find_runs(module, profile))


def _resources(
    module: DumpedModule, selection: Selection, cache: DumpCache, progress: Progress
) -> Resources:
    from fusionscope.findings.resources.find import find_resources
    from fusionscope.findings.resources.ptxas import find_ptxas, version_of

    ptxas = find_ptxas()
    if ptxas is None:
        return Resources({}, (f"{ABOUT}: no ptxas is installed: pip install nvidia-cuda-nvcc",))
    device = module.device or selection.device
    return cache.get(
        module,
        Resources,
        (version_of(ptxas), selection.device),
        lambda: find_resources(module, device, ptxas, cache=cache.entries, progress=progress),
    )


def _with_figures(row: ModuleRow, facts: ModuleFacts) -> ModuleRow:
    """A row of the table, with the findings about the module."""
    totals = facts.summary
    return replace(
        row,
        launches=totals.launches,
        bytes_moved=totals.bytes_moved,
        time_us=_time_of(facts),
        refused_bytes=sum(reason.bytes_saved for reason in facts.summary.reasons.values()),
    )


def _with_refused_bytes(row: ModuleRow, module: DumpedModule, cache: DumpCache) -> ModuleRow:
    """A row of the table of a module that is not explained."""
    from fusionscope.explain.analyze_module import refused_bytes

    try:
        refused = cache.get(module, RefusedBytes, (), lambda: refused_bytes(module))
    except UnusableInput:  # what the table has is from a stage that can be read
        return row
    return replace(row, refused_bytes=refused.count)


def _time_of(facts: ModuleFacts) -> float | None:
    if (measured := facts.find(Measured)) is not None:
        return measured.time_us
    return facts.summary.time.microseconds if facts.summary.time is not None else None


def _check_reason(reason: str | None) -> None:
    """Raise ``UnusableInput`` if ``reason`` is not the id of a rule."""
    if reason is None:
        return
    from fusionscope.rules.messages import rule_ids  # imports the rules

    if reason not in rule_ids():
        close = get_close_matches(reason, rule_ids(), 3, 0.4)
        raise UnusableInput(
            f"there is no reason {quoted(reason)}, expected a rule id such as "
            f"{', '.join(close or sorted(rule_ids())[:3])}"
        )


def _check_loops(steps: Iterable[str], modules: Iterable[ModuleFacts]) -> None:
    """Raise ``UnusableInput`` if none of ``modules`` has a loop of one of these names."""
    loops = dict.fromkeys(loop.name for module in modules for loop in module.loops)
    for name in steps:
        if name not in loops:
            names = ", ".join(get_close_matches(name, loops, 3, 0.4) or [*loops][:3])
            raise UnusableInput(
                f"no loop is called {quoted(name)}" + (f"; loops: {names}" if names else "")
            )


def _count_costliest(rows: Sequence[ModuleRow], most: int) -> int:
    """Return how many modules to explain, given their figures in descending order. Helpers of JAX,
    and modules for a CPU, whose time is that of a nominal one, count only if there is nothing else.
    """
    main_rows = [row for row in rows if not row.is_helper] or rows
    main_rows = [row for row in main_rows if row.device != "CPU"] or main_rows
    by_time = all(row.time_us is not None for row in main_rows)
    costs = [weight(row, by_time=by_time) for row in main_rows]
    total, moved, count = fsum(costs), 0.0, 0
    while count < min(len(costs), most) and (count == 0 or moved < _SHARE * total):
        moved += costs[count]
        count += 1
    return count
