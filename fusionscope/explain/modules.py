"""Selects the modules of a dump that a command is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from fusionscope.dump import Dump, DumpedModule
from fusionscope.errors import UnusableInput, quoted
from fusionscope.explain.result import ModuleRow, TimeEstimate
from fusionscope.explain.times import clock_for, sum_up
from fusionscope.history.kernels import Kernel, find_kernels
from fusionscope.history.values import Numbering
from fusionscope.hlo import Module
from fusionscope.progress import Progress, counted, silent
from fusionscope.versions.context import read_gpu

_NO_WORD = re.compile(r"\W+")
_NAMELESS = frozenset({"lambda", "unnamed_function", "unnamed_wrapped_function", "unknown"})


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


def rank_modules(
    dump: Dump, wanted: str | None, *, progress: Progress = silent
) -> tuple[list[DumpedModule], list[str]]:
    """Return the modules that ``wanted`` names (a glob or a number; None: all), the costliest
    first, and one line for each that cannot be read. Raises ``UnusableInput`` if there is none.
    """
    ranked, problems = rank(dump, wanted, progress=progress)
    return [module for _, module in ranked], problems


def rank(
    dump: Dump, wanted: str | None, *, progress: Progress = silent
) -> tuple[list[tuple[ModuleRow, DumpedModule]], list[str]]:
    """Return the same with the cost of a run of each module.

    If there is only one module, its cost is not examined. The user's modules come before those that
    JAX compiled for functions of its own.
    """
    modules = pick_modules(dump, wanted)
    problems: list[str] = []
    rows: list[tuple[ModuleRow, DumpedModule]] = []
    for module in counted(modules, "ranking module", progress):
        try:
            rows.append((_row(module) if len(modules) > 1 else _only(module), module))
        except UnusableInput as error:
            problems.append(str(error))
    have_stacks = [_has_stacks(module) for _, module in rows] if len(rows) > 1 else []
    if any(have_stacks):
        # One with names and no call stack was then compiled for no line of the user's.
        rows = [
            (
                row if has_stacks else replace(row, is_helper=row.is_helper or _has_names(module)),
                module,
            )
            for (row, module), has_stacks in zip(rows, have_stacks, strict=True)
        ]
    are_timed = all(row.time_us is not None for row, _ in rows)
    rows.sort(key=lambda each: (each[0].is_helper, -weight(each[0], by_time=are_timed)))
    return rows, problems


def weight(row: ModuleRow, *, by_time: bool) -> float:
    """Return the sort key of modules."""
    return row.time_us or 0.0 if by_time else row.bytes_moved


def _only(module: DumpedModule) -> ModuleRow:
    return ModuleRow(
        name=module.name,
        number=module.number,
        launches=0,
        bytes_moved=0,
        time_us=None,
        refused_bytes=None,
        is_helper=False,
    )


def _row(module: DumpedModule) -> ModuleRow:
    last = module.read(module.final or module.stages[-1])
    kernels = find_kernels(Numbering().number(last), module.backend)
    time = _time(module, last, kernels)
    return ModuleRow(
        name=module.name,
        number=module.number,
        launches=sum(kernel.runs for kernel in kernels),
        bytes_moved=sum(kernel.bytes_moved for kernel in kernels),
        time_us=time.microseconds if time is not None else None,
        refused_bytes=None,
        is_helper=_is_helper(module.name, last),
    )


def _time(module: DumpedModule, last: Module, kernels: Sequence[Kernel]) -> TimeEstimate | None:
    try:
        clock = clock_for(last, module.backend, read_gpu(module))
    except UnusableInput:  # reported where the module is explained
        return None
    return None if clock is None else sum_up(kernels, [clock.time(kernel) for kernel in kernels])


def _is_helper(name: str, module: Module) -> bool:
    """Return whether JAX compiled the module for a function of its own, such as that behind
    ``jax.random.normal``.

    Call stacks omit JAX, so none of them contains a function of that name. If the dump has no call
    stacks, or the function has no name, the module counts as the user's.
    """
    function = _plain(name.partition("_")[2])
    if not function or function in _NAMELESS:
        return False
    functions = {_plain(each.rpartition(".")[2]) for each in _functions(module)}
    return bool(functions) and function not in functions


def _has_stacks(module: DumpedModule) -> bool:
    return any(True for _ in _functions(module.read(module.final or module.stages[-1])))


def _has_names(module: DumpedModule) -> bool:
    return any(each.op_name for each in module.read(module.final or module.stages[-1]).walk())


def _functions(module: Module) -> Iterator[str]:
    """Return the functions in the call stacks of a module."""
    for instruction in module.walk():
        for frame in instruction.stack:
            if frame.function:
                yield frame.function


def _plain(name: str) -> str:
    """Return the name of a function in the notation of module names."""
    return _NO_WORD.sub("_", name).strip("_")
