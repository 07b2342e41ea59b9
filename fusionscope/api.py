"""The library as its commands read: ``fusionscope.open("dump").explain()``.

The logger ``fusionscope`` receives steps of an analysis, and warnings of what could not be read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fusionscope.dump import Dump, DumpedModule, open_dump

if TYPE_CHECKING:
    import networkx

    from fusionscope.compare.difference import Difference
    from fusionscope.compare.module_history import History
    from fusionscope.dump.device import Device
    from fusionscope.explain import Explanation, Selection
    from fusionscope.hlo import Instruction
    from fusionscope.report.views import KernelView, PageView
    from fusionscope.verify.verification import Verification

_LOGGER = logging.getLogger("fusionscope")
_LOGGER.addHandler(logging.NullHandler())  # or Python would print warnings


def _log_step(words: str) -> None:
    _LOGGER.debug("%s", words)


def _log_problems(problems: Iterable[str]) -> None:
    for problem in problems:
        _LOGGER.warning("%s", problem)


@dataclass(frozen=True, slots=True)
class OpenedDump:
    """A dump, with a method for each command that reads one."""

    dump: Dump

    @property
    def path(self) -> Path:
        return self.dump.path

    @property
    def modules(self) -> tuple[DumpedModule, ...]:
        """By number, the oldest process first."""
        return self.dump.modules

    def explain(self, selection: Selection | None = None) -> Explanation:
        """Return which operations were fused, and why (not), in the costliest modules or in those
        that ``selection`` names. Raises ``UnusableInput`` if nothing can be explained."""
        from fusionscope.explain import explain
        from fusionscope.explain.selection import EVERYTHING

        explanation = explain(self.dump, selection or EVERYTHING, progress=_log_step)
        _log_problems(explanation.problems)
        return explanation

    def kernel(self, name: str, *, module: str | None = None, radius: int = 1) -> KernelView:
        """Return the kernels that ``name`` (a glob) matches in the first module that has any, with
        a figure of these and of those up to ``radius`` kernels away. ``module`` is a glob, or a
        number. Raises ``UnusableInput`` if none matches."""
        from fusionscope.page.kernel_pictures import kernel_picture
        from fusionscope.report.views import kernel_view

        picture = kernel_picture(self.dump, name, module=module, radius=radius, progress=_log_step)
        return kernel_view(picture)

    def report(self, selection: Selection | None = None) -> PageView:
        """Return the page about the costliest modules, or about those that ``selection`` names,
        without suggestions. Raises ``UnusableInput`` if nothing can be explained, or without
        jinja2."""
        from fusionscope.explain.selection import EVERYTHING
        from fusionscope.page.report_facts import report_facts
        from fusionscope.report.html.page import report_page
        from fusionscope.report.views import PageView

        facts = report_facts(self.dump, selection or EVERYTHING, Path(), progress=_log_step)
        _log_problems(facts.problems)
        return PageView(report_page(facts))

    def history(
        self, name: str | None = None, *, module: str | None = None, all_modules: bool = False
    ) -> History:
        """Return how fusions formed pass by pass in the costliest module, or in those that
        ``module`` (a glob, or a number) names; with the ``name`` of an instruction, its trace.
        Raises ``UnusableInput`` if there is nothing to show."""
        from fusionscope.compare.module_history import history_of

        history = history_of(
            self.dump, name, module=module, all_modules=all_modules, progress=_log_step
        )
        _log_problems(history.problems)
        return history

    def verify(self, *, rules: str | None = None, device: Device | None = None) -> Verification:
        """Return how far a replay of the compiler's rules agrees with the compiler. The rules are
        those of the version that made the dump, or those that ``rules`` names; the GPU is the
        dump's own, or ``device``. Raises ``UnusableInput`` if nothing can be replayed."""
        from fusionscope.verify.verification import verify
        from fusionscope.versions.known import compiler_named

        verification = verify(
            self.dump, self.dump.modules, compiler_named(rules), device, progress=_log_step
        )
        _log_problems(verification.problems)
        return verification

    def kernel_graph(self, module: str | None = None) -> networkx.MultiDiGraph[Instruction]:
        """Return the launches of the final module and the values that pass between them, as
        ``history.kernel_graph`` describes them. The module is the costliest one, or the costliest
        that ``module`` (a glob, or a number) names. Raises ``UnusableInput`` if none can be
        read."""
        from fusionscope.errors import UnusableInput
        from fusionscope.explain.modules import rank_modules
        from fusionscope.history.kernel_graph import kernel_graph

        ranked, problems = rank_modules(self.dump, module)
        if not ranked:
            raise UnusableInput(problems[0])
        (largest, *_) = ranked
        return kernel_graph(largest.read(largest.last), largest.backend)


def open(path: Path | str) -> OpenedDump:
    """Open a dump: a directory, an archive, or one file. Raises ``UnusableInput``."""
    return OpenedDump(open_dump(path))


def diff(before: Path | str, after: Path | str, *, module: str | None = None) -> Difference:
    """Compare two HLO files, two stages (``DUMP@STAGE``) or two dumps. ``module`` is a glob for the
    names of modules. Raises ``UnusableInput`` if nothing can be compared."""
    from fusionscope.compare.difference import compare

    difference = compare(before, after, module=module, progress=_log_step)
    _log_problems((*difference.problems, *difference.notes))
    return difference
