"""Selects the modules of a dump that a command is about."""

from __future__ import annotations

from fnmatch import fnmatchcase

from fusionscope.dump import Dump, DumpedModule
from fusionscope.errors import UnusableInput, quoted
from fusionscope.history.kernels import find_kernels
from fusionscope.history.values import Numbering


def pick_modules(dump: Dump, wanted: str | None) -> list[DumpedModule]:
    """Return the modules that ``wanted`` names (a glob or a number; None: all). Raises
    ``UnusableInput`` if there is none.
    """
    modules = [
        module
        for module in dump.modules
        if wanted is None or fnmatchcase(module.name, wanted) or wanted == str(module.number)
    ]
    if not modules:
        names = ", ".join(sorted({module.name for module in dump.modules})[:8])
        problem = f"no module matches {quoted(wanted)}, there are {names}"
        raise UnusableInput(problem, file=str(dump.path))
    return modules


def pick_module(dump: Dump, wanted: str | None) -> DumpedModule:
    """Return the one module that ``wanted`` names. Raises ``UnusableInput`` if there
    are several.
    """
    picked = pick_modules(dump, wanted)
    if len(picked) > 1:
        names = ", ".join(f"{each.name} ({each.number})" for each in picked[:8])
        raise UnusableInput(f"several modules: {names}", hint="name one with --module")
    return picked[0]


def rank_modules(dump: Dump, wanted: str | None) -> tuple[list[DumpedModule], list[str]]:
    """Return the modules that ``wanted`` names (a glob or a number; None: all), the costliest
    first, and one line for each that cannot be read. Raises ``UnusableInput`` if there is none.
    """
    costs, problems = costs_of(dump, wanted)
    return [module for _, module in costs], problems


def costs_of(dump: Dump, wanted: str | None) -> tuple[list[tuple[int, DumpedModule]], list[str]]:
    modules = pick_modules(dump, wanted)
    problems: list[str] = []
    costs: list[tuple[int, DumpedModule]] = []
    for module in modules:
        try:
            costs.append((_cost(module) if len(modules) > 1 else 0, module))
        except UnusableInput as error:
            problems.append(str(error))
    costs.sort(key=lambda cost: -cost[0])
    return costs, problems


def _cost(module: DumpedModule) -> int:
    """Return the bytes that the last stage moves, by which modules are ranked."""
    last = module.final or module.stages[-1]
    numbered = Numbering().number(module.read(last))
    return sum(kernel.bytes_moved for kernel in find_kernels(numbered, module.backend))
