"""Everything that the page of ``fusionscope report`` shows about a dump."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fusionscope.compare.difference import Difference, compare
from fusionscope.dump import Dump, DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.explain.explain import Suggest, explain
from fusionscope.explain.selection import Selection
from fusionscope.facts.result import Explanation, ModuleFacts
from fusionscope.page.fusion_graph import FusionGraph, fusion_graphs
from fusionscope.progress import Progress, about, silent
from fusionscope.rules.facts import RuleFacts, all_facts
from fusionscope.system.files import read_text

_CONTEXT = 3  # lines around each line that operations come from
_MOST_LINES = 20_000  # of all source files
_MOST_MODULES = 5  # of two dumps


@dataclass(frozen=True, slots=True)
class SourceLines:
    """Lines of a source file, from the line number ``first`` on."""

    file: str
    first: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts:
    """``graphs`` are those of the explained modules, None if there is none. ``rules`` are the pages
    of the reasons.
    """

    explanation: Explanation
    graphs: tuple[FusionGraph | None, ...]
    rules: tuple[RuleFacts, ...]
    sources: tuple[SourceLines, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceFacts:
    """Two dumps. Both sides have the same modules in the same order, those that differ most first;
    graphs of two modules have the same nodes and numbers of kernels.
    """

    difference: Difference
    before: ReportFacts
    after: ReportFacts


def report_facts(
    dump: Dump,
    selection: Selection,
    sources: Path,
    *,
    suggest: Suggest | None = None,
    progress: Progress = silent,
) -> ReportFacts:
    """Return the facts about the modules that ``selection`` names, or the costliest.

    Source files are read only below the directory ``sources``: a dump may name any file. Raises
    ``UnusableInput`` if nothing can be explained.
    """
    explanation = explain(dump, selection, suggest=suggest, progress=progress)
    problems = list(explanation.problems)
    graphs: list[FusionGraph | None] = []
    for facts in explanation.modules:
        module = dumped(dump, facts)
        graphs_of_module = _graphs((module,), about(module.name, progress), problems)
        graphs.append(graphs_of_module[0] if graphs_of_module else None)
    return _side(explanation, graphs, sources, problems)


def difference_facts(
    before: Dump,
    after: Dump,
    selection: Selection,
    sources: Path,
    *,
    suggest: Suggest | None = None,
    progress: Progress = silent,
) -> DifferenceFacts:
    """Return how two dumps differ in the modules that ``selection`` names, with the facts about
    those that do. If none does, about the costliest of each side. Source files are read as by
    ``report_facts``.

    Raises ``UnusableInput`` if the dumps cannot be compared, or one of them cannot be explained.
    """
    difference = compare(before, after, module=selection.module, progress=progress)
    modules_shown = difference.modules[:_MOST_MODULES]
    numbers_wanted = [
        (module_shown.before.number, module_shown.after.number) for module_shown in modules_shown
    ]
    numbers_wanted = numbers_wanted or [difference.same[0].numbers]
    problems = list(difference.problems)
    explained = [
        _explain_numbers(dump, numbers, selection, module_shown, progress)
        for dump, numbers, module_shown in zip(
            (before, after), zip(*numbers_wanted, strict=True), (None, suggest), strict=True
        )
    ]
    graphs: list[tuple[FusionGraph, ...]] = []
    for before_module, after_module in zip(explained[0].modules, explained[1].modules, strict=True):
        modules = dumped(after, after_module), dumped(before, before_module)
        graphs.append(_graphs(modules, about(after_module.name, progress), problems))
    sides = [
        _side(
            explanation,
            [
                graphs_of_modules[place] if graphs_of_modules else None
                for graphs_of_modules in graphs
            ],
            sources,
            problems,
        )
        for explanation, place in zip(explained, (1, 0), strict=True)
    ]
    return DifferenceFacts(difference=difference, before=sides[0], after=sides[1])


def _explain_numbers(
    dump: Dump,
    numbers: Sequence[int],
    selection: Selection,
    suggest: Suggest | None,
    progress: Progress,
) -> Explanation:
    """Explain the modules with these numbers, in this order."""
    explanations = [
        explain(dump, replace(selection, module=str(number)), suggest=suggest, progress=progress)
        for number in numbers
    ]
    problems = dict.fromkeys(
        problem for explanation_of in explanations for problem in explanation_of.problems
    )
    return replace(
        explanations[0],
        modules=tuple(explanation_of.modules[0] for explanation_of in explanations),
        folded=(),
        problems=tuple(problems),
    )


def _graphs(
    modules: Sequence[DumpedModule], progress: Progress, problems: list[str]
) -> tuple[FusionGraph, ...]:
    """Return the graphs of ``modules``, nothing if one cannot be followed; that is a problem."""
    try:
        return fusion_graphs(modules, progress=progress)
    except UnusableInput as error:
        problems.append(str(error))
        return ()


def _side(
    explanation: Explanation,
    graphs: Sequence[FusionGraph | None],
    sources: Path,
    problems: Sequence[str],
) -> ReportFacts:
    return ReportFacts(
        explanation=explanation,
        graphs=tuple(graphs),
        rules=_rules(explanation.modules),
        sources=tuple(_read_sources(explanation.modules, sources)),
        problems=tuple(dict.fromkeys((*problems, *explanation.problems))),
    )


def dumped(dump: Dump, facts: ModuleFacts) -> DumpedModule:
    """Return the module of ``dump`` that ``facts`` are about."""
    return next(
        module
        for module in dump.modules
        if (module.number, module.name) == (facts.number, facts.name)
    )


def _rules(modules: Sequence[ModuleFacts]) -> tuple[RuleFacts, ...]:
    reasons = {pair.reason for module in modules for pair in module.pairs}
    reasons |= {
        pair.fused_by_later_pass.reason
        for module in modules
        for pair in module.pairs
        if pair.fused_by_later_pass is not None
    }
    return tuple(rule for rule in all_facts() if rule.id in reasons)


def _read_sources(modules: Sequence[ModuleFacts], directory: Path) -> Iterator[SourceLines]:
    """Yield the lines that operations come from, with those around them."""
    places = {
        source
        for module in modules
        for pair in module.pairs
        for source in (pair.producer.source, pair.consumer.source)
    } | {kernel.source for module in modules for kernel in module.kernels}
    lines_wanted: dict[str, set[int]] = defaultdict(set)
    for place in places:
        file, colon, line = (place or "").rpartition(":")
        if colon and line.isdecimal():
            lines_wanted[file].add(int(line))
    budget = _MOST_LINES
    for file, numbers in sorted(lines_wanted.items()):
        text = _source_text(file, directory)
        for first, last in _spans(numbers):
            lines = tuple(text[first - 1 : last])
            budget -= len(lines)
            if budget < 0:
                return
            if lines:
                yield SourceLines(file, first, lines)


def _source_text(file: str, directory: Path) -> list[str]:
    """Return the lines of a file below ``directory``, none if it is not there."""
    try:
        path = (directory / file).resolve()
        if not path.is_relative_to(directory.resolve()):
            return []
        return read_text(path).splitlines()
    except (UnusableInput, OSError, ValueError, RuntimeError):
        return []


def _spans(numbers: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last lines of stretches around ``numbers``, in order."""
    begin = end = 0
    for number in sorted(numbers):
        first, last = max(1, number - _CONTEXT), number + _CONTEXT
        if first <= end + 1 and end:
            end = last
            continue
        if end:
            yield begin, end
        begin, end = first, last
    if end:
        yield begin, end
