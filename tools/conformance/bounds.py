"""Holds what is at best possible against what compilers made: no bound is above a time.

Each of DUMPS is a dump for a GPU, or a directory with dumps in it. The bound of each module,
kernel, part of the program, loop and opportunity is at most its estimated time, and the time of an
opportunity at most that of the module. With ``--same``, those in a directory are of one program
that was compiled in several ways: then the bound of a module is also at most the time of each of
its other compilations. A bound may be above by what ticks round.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from conformance.findings import Finding, add_dumps, counted, problem
from conformance.outcomes import dumps
from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import ModuleFacts, Selection, explain
from fusionscope.facts.result import Branch
from fusionscope.findings.headroom.facts import Headroom
from fusionscope.findings.opportunities.facts import Opportunity

_TICKS = 2e-4  # of a time


class Row(NamedTuple):
    """A set of kernels, with its bound and its time in microseconds."""

    kind: str
    name: str
    at_best_us: float | None
    time_us: float

    @property
    def is_sound(self) -> bool:
        return (self.at_best_us or 0.0) <= self.time_us * (1 + _TICKS)


def branches(branch: Branch) -> Iterator[Branch]:
    rows = [branch]
    for row in rows:
        rows += row.children
    yield from rows


def bounds_in(module: ModuleFacts) -> Iterator[Row]:
    """All bounds of a module; none unless a GPU is known."""
    headroom, time = module.find(Headroom), module.summary.time
    if headroom is None or time is None:
        return
    yield Row("module", module.name, headroom.at_best_us, time.microseconds)
    by_step = headroom.at_best_by_step_us
    yield Row("module by step", module.name, by_step, time.microseconds)
    for kernel in module.kernels:
        yield Row("kernel", kernel.name, kernel.at_best_us, kernel.time_us)
    for branch in branches(module.breakdown.tree) if module.breakdown is not None else ():
        yield Row("part", branch.name, branch.at_best_us, branch.time_us)
    for loop in headroom.loops:
        yield Row("loop by step", loop.name, loop.at_best_by_step_us, loop.time_us)
        yield Row("loop", loop.name, loop.at_best_us, loop.at_best_by_step_us)
    for row in module.find_all(Opportunity):
        name = f"{row.id} {row.where}"
        yield Row("opportunity", name, row.at_best_us, row.time_us)
        yield Row("opportunity in its module", name, row.time_us, time.microseconds)


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)
    same = "those in a directory are compilations of one program"
    parser.add_argument("--same", action="store_true", help=same)


def findings(options: Namespace) -> Iterator[Finding]:
    for root in options.dumps:
        wholes: dict[str, list[Row]] = defaultdict(list)
        for path in dumps(root):
            try:
                explanation = explain(open_dump(path), Selection(all_modules=not options.same))
            except UnusableInput as error:
                yield counted("dumps not readable", f"{path}: {error}")
                continue
            for row in (row for module in explanation.modules for row in bounds_in(module)):
                yield _verdict(row, path)
                if row.kind == "module":
                    wholes[row.name].append(row)
        if options.same:
            for bound, time in (pair for rows in wholes.values() for pair in permutations(rows, 2)):
                yield _verdict(bound._replace(kind="compilation", time_us=time.time_us), root)


def _verdict(row: Row, where: Path) -> Finding:
    if row.is_sound:
        return counted(row.kind)
    figures = f"at best {row.at_best_us:g} of {row.time_us:g} us"
    return problem(f"{row.kind} above its time", f"{where} {row.kind} {row.name}: {figures}")
