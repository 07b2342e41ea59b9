"""Writes a baseline anew, and says what that accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fusionscope.check.as_before import Tolerance
from fusionscope.check.baseline import (
    Baseline,
    Recorded,
    is_named,
    read_baseline,
    record_all,
    write_baseline,
)
from fusionscope.check.checking import Verdict, check
from fusionscope.check.matrix import NotCompiled
from fusionscope.check.subject import Cell
from fusionscope.errors import UnusableInput
from fusionscope.system.files import is_there


@dataclass(frozen=True, slots=True)
class Updated:
    """``text`` is the new file. ``accepted`` are the modules that differ from the old one; ``new``
    were not in it. ``removed`` were in it, and no dump has them. ``kept`` were not asked about, or
    did not compile. ``unchanged`` counts the others.
    """

    text: str
    accepted: tuple[Verdict, ...]
    new: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    unchanged: int


def update(
    file: Path,
    cells: Sequence[Cell],
    failures: Sequence[NotCompiled],
    module: str | None,
) -> Updated:
    """Return the new content of ``file``: the modules of ``cells``, and the old ones that the glob
    ``module`` does not select. A file that is not a baseline is replaced completely. Raises
    ``UnusableInput`` for such a file if ``module`` is given.
    """
    old = Baseline(())
    try:
        old = read_baseline(file, Tolerance()) if is_there(file) else old
    except UnusableInput:
        if module is not None:
            raise
    failed = {(failure.program, failure.target) for failure in failures}

    def stays(recorded: Recorded) -> bool:
        key, _ = recorded
        is_other = module is not None and not is_named(recorded, module)
        return is_other or (key.program, key.target) in failed

    modules_kept = tuple(filter(stays, old.modules))
    compared_baseline = replace(
        old, modules=tuple(module for module in old.modules if not stays(module))
    )
    outcomes = check(cells, [], compared_baseline).outcomes
    compared = [
        outcome for outcome in outcomes if outcome.modules and outcome.expectation.value is not None
    ]
    accepted = tuple(outcome for outcome in compared if outcome.violations or outcome.notes)
    return Updated(
        write_baseline([*record_all(cells), *modules_kept]),
        accepted,
        tuple(
            outcome.expectation.identity
            for outcome in outcomes
            if outcome.modules and outcome.expectation.value is None
        ),
        tuple(outcome.expectation.identity for outcome in outcomes if not outcome.modules),
        tuple(str(key) for key, _ in modules_kept),
        len(compared) - len(accepted),
    )
