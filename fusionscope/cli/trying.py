"""What commands try on each module that they explain."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.dump import DumpedModule
    from fusionscope.explain import ModuleFacts, Selection
    from fusionscope.explain.explain import Suggest, TimeRun
    from fusionscope.facts.suggestions import Suggestions
    from fusionscope.findings.run.facts import Run
    from fusionscope.progress import Progress


def tries(selection: Selection, python: str, *, compiles: bool = False) -> Suggest:
    """Return the function that tries changes. ``python`` compiles what recipes change for GPUs and,
    if it ``compiles``, the program with every change.
    """
    return partial(_suggest, selection, python, compiles)


def times_run(python: str) -> TimeRun:
    """Return the function that runs a program for CPUs; ``python`` compiles it."""
    return partial(_time_run, python)


def _time_run(python: str, module: DumpedModule, needed_bytes: float, progress: Progress) -> Run:
    from fusionscope.advise.recipes.trying import Compilation
    from fusionscope.rerun.alone import time_alone

    compilation = Compilation(python)
    return time_alone(
        module,
        needed_bytes,
        seconds=compilation.seconds,
        python=python,
        limit_s=compilation.limit_s,
        progress=progress,
    )


def _suggest(
    selection: Selection,
    python: str,
    compiles: bool,
    module: DumpedModule,
    facts: ModuleFacts,
    progress: Progress,
) -> Suggestions:
    from fusionscope.advise.recipes.trying import Compilation  # not if this was tried before
    from fusionscope.advise.suggest import suggester

    compilation = Compilation(python)
    ask = suggester(
        selection,
        is_limited=not selection.in_full,
        compilation=compilation if compiles else None,
        regions=compilation,
    )
    return ask(module, facts, progress)
