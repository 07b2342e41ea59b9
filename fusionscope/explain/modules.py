"""Selects the modules of a dump that a command is about."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial

from fusionscope.dump import Dump, DumpedModule
from fusionscope.dump.cache import DumpCache
from fusionscope.errors import UnusableInput, quoted
from fusionscope.facts.module_analysis import Examined, ExaminedModules
from fusionscope.facts.result import ModuleRow
from fusionscope.progress import Progress, counted, silent

MODULES_SHOWN = 8  # in a table, with all figures
NO_FINAL = "no after_optimizations stage (did the compiler crash?): using {stage} instead"


def pick_modules(dump: Dump, pattern: str | None) -> list[DumpedModule]:
    """Return the modules that ``pattern`` names (a glob, a number or the timestamp of a run; None:
    all). Raises ``UnusableInput`` if there is none.
    """
    modules = [
        module
        for module in dump.modules
        if pattern is None
        or fnmatchcase(module.name, pattern)
        or pattern in (str(module.number), module.run)
    ]
    if not modules:
        names = ", ".join(sorted({module.name for module in dump.modules})[:8])
        problem = f"no module matches {quoted(pattern)}, there are {names}"
        raise UnusableInput(problem, file=str(dump.path))
    return modules


def pick_module(dump: Dump, pattern: str | None) -> DumpedModule:
    """Return the one module that ``pattern`` names. Raises ``UnusableInput``."""
    matches = pick_modules(dump, pattern)
    if len(matches) > 1:
        names = ", ".join(f"{match.name} ({match.run or match.number})" for match in matches[:8])
        raise UnusableInput(f"several modules: {names}", hint="name one with --module")
    return matches[0]


def rank_modules(
    dump: Dump, pattern: str | None, *, progress: Progress = silent
) -> tuple[list[DumpedModule], list[str]]:
    """Return the modules that ``pattern`` names (a glob or a number; None: all), the costliest
    first, and one line for each that cannot be read. Raises ``UnusableInput`` if there is none.
    """
    ranked, problems = rank(dump, pattern, progress=progress)
    return [module for _, module in ranked], problems


def rank(
    dump: Dump, pattern: str | None, cache: DumpCache | None = None, *, progress: Progress = silent
) -> tuple[list[tuple[ModuleRow, DumpedModule]], list[str]]:
    """Return the same with the cost of a run of each module.

    The user's modules come before those that JAX compiled for functions of its own, and those for a
    CPU, whose time is that of a nominal one, after those for other devices. The cost of the first
    module is not examined if that already decides.
    """
    modules = pick_modules(dump, pattern)
    if len(modules) == 1:
        return [(_only(modules[0]), modules[0])], []
    cache = cache or DumpCache(dump, None)
    largest = max(modules, key=lambda module: module.last.file.size)
    results = cache.get_all(
        modules, ExaminedModules, (), partial(_examine_all, modules, largest, progress)
    )
    pairs = zip(results.modules, modules, strict=True)
    examined = [(examination, module) for examination, module in pairs if examination is not None]
    rows = _rows(examined)
    if len(rows) > 1 and not _is_settled(rows, largest):
        with suppress(UnusableInput):  # among the problems
            costs = cache.get(largest, Examined, (), partial(_examine, largest, has_cost=True))
            rows = _rows(
                [
                    (costs if module is largest else examination, module)
                    for examination, module in examined
                ]
            )
    return rows, list(results.problems)


def _examine_all(
    modules: Sequence[DumpedModule], largest: DumpedModule, progress: Progress
) -> ExaminedModules:
    """Examine all modules, but not the cost of the ``largest``."""
    examined: list[Examined | None] = []
    problems: list[str] = []
    for module in counted(modules, "ranking module", progress):
        try:
            examined.append(_examine(module, has_cost=module is not largest))
        except UnusableInput as error:
            examined.append(None)
            problems.append(str(error))
    return ExaminedModules(tuple(examined), tuple(problems))


def _rows(
    examined: Sequence[tuple[Examined, DumpedModule]],
) -> list[tuple[ModuleRow, DumpedModule]]:
    # With call stacks elsewhere in a dump, names without one are those of no line of the user's.
    with_stacks = {module.directory for examination, module in examined if examination.has_stacks}
    rows = [
        (
            replace(examination.row, is_helper=True)
            if module.directory in with_stacks
            and examination.has_names
            and not examination.has_stacks
            else examination.row,
            module,
        )
        for examination, module in examined
    ]
    are_timed = all(row.time_us is not None for row, _ in rows)
    return sorted(rows, key=lambda ranked: (*_class(ranked), -weight(ranked[0], by_time=are_timed)))


def _is_settled(rows: Sequence[tuple[ModuleRow, DumpedModule]], first: DumpedModule) -> bool:
    """Return whether ``first`` is the first one, whatever it costs."""
    return rows[0][1] is first and _class(rows[0]) < _class(rows[1])


def _class(ranked: tuple[ModuleRow, DumpedModule]) -> tuple[bool, bool, bool, str]:
    """Return what decides before the cost of a module."""
    row, module = ranked
    return row.is_helper, module.backend == "cpu", not row.device, row.device


def weight(row: ModuleRow, *, by_time: bool) -> float:
    """Return the sort key of modules."""
    return row.time_us or 0.0 if by_time else row.bytes_moved


def _examine(module: DumpedModule, *, has_cost: bool) -> Examined:
    from fusionscope.explain.module_cost import module_cost  # imports what reads stages

    return module_cost(module, has_cost=has_cost)


def _only(module: DumpedModule) -> ModuleRow:
    return ModuleRow(
        name=module.name,
        number=module.number,
        device="",
        launches=0,
        bytes_moved=0,
        time_us=None,
        refused_bytes=None,
        is_helper=False,
    )
