"""Compiles a program with two releases of the compiler, and says what that changed, where, since
when, and what gets it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fusionscope.compare.difference import Difference
from fusionscope.facts.facts import Facts
from fusionscope.passes.overrides import PairPattern
from fusionscope.progress import Progress, silent
from fusionscope.upgrade.below import CodeChange
from fusionscope.upgrade.figures import (
    Change,
    Figure,
    Side,
    Verdict,
    compare_figures,
    differing,
    overall,
)
from fusionscope.upgrade.makers import MakerChange, compare_makers
from fusionscope.upgrade.measured import measure_twice
from fusionscope.upgrade.place import Where, compare_dumps
from fusionscope.upgrade.remedies import Remedy, try_changes
from fusionscope.upgrade.trial import Trial, compile_both
from fusionscope.upgrade.walk import Boundary, walk


class Upgrade(Facts, frozen=True, kw_only=True, tag_field="schema", tag="fusionscope.upgrade/1"):
    """What an upgrade changed.

    program: what was compiled
    device: what it was compiled for
    before: the program with the first release
    after: the program with the second release
    verdict: ``same``, ``better`` or ``worse``, by the first of ``changes`` that differs
    changes: all figures of both sides
    where: ``lowering`` if the compiler gets another program, ``passes`` if they make another of it,
        ``below`` if the final HLO is the same and code of kernels differs, otherwise ``nowhere``;
        like ``code``, between the neighbours of ``boundary`` if there is one
    code: traits that differ in the code of kernels that have the same HLO; null if the dumps share
        no code
    makers: passes whose kernels cost another amount, those that grew most first; between the
        neighbours of ``boundary``, too
    boundary: the releases between which it changed; null if that was not asked
    remedies: flags and edits that get it back at least in part, the best first
    flags_tried: how many flags were compiled
    edits_tried: how many edits were compiled, each of them a recipe
    is_below: whether the measured time differs, and HLO does not explain that: none of its figures
        is worse where the time is, or better
    pin: the last release before the change, or the first release if that was not asked; as pip
        takes it, empty if it is not worse
    """

    internal: ClassVar[tuple[str, ...]] = ("difference",)
    computed: ClassVar[tuple[str, ...]] = ("is_below",)

    program: str
    device: str
    before: Side
    after: Side
    verdict: Verdict
    changes: tuple[Change, ...]
    where: Where
    difference: Difference
    code: tuple[CodeChange, ...] | None
    makers: tuple[MakerChange, ...] = ()
    boundary: Boundary | None = None
    remedies: tuple[Remedy, ...] = ()
    flags_tried: int = 0
    edits_tried: int = 0
    pin: str = ""

    @property
    def compared(self) -> tuple[Side, Side]:
        """The two sides that ``where``, ``difference`` and ``code`` compare."""
        return (self.before, self.after) if self.boundary is None else self.boundary.neighbours

    @property
    def is_below(self) -> bool:
        return _is_below(*self.compared)


def upgrade(
    trial: Trial,
    pythons: tuple[str, str],
    *,
    by: Figure | PairPattern | None = None,
    bisects: bool = False,
    most: int = 0,
    progress: Progress = silent,
) -> Upgrade:
    """Compare what two ``pythons`` make of a program: paths, or releases of jaxlib.

    If it ``bisects``, the releases between them are walked: ``by`` is what is followed, by default
    the figure that decides the verdict. Up to ``most`` flags, and as many edits, are tried if it is
    worse. Raises ``UnusableInput`` if one of the two cannot compile it, or there is nothing to
    follow.
    """
    before, after = compile_both(trial, pythons, progress)
    if trial.runs and not (before.problem or after.problem):
        progress("measuring both")
        before, after = measure_twice(trial, (before, after))
    changes = compare_figures(before, after)
    difference, where, code = compare_dumps(before, after, progress)
    boundary: Boundary | None = None
    remedies: tuple[Remedy, ...] = ()
    flags_tried = edits_tried = 0
    verdict = overall(changes)
    if bisects:
        boundary = walk(
            trial, (before, after), by or _first(changes, Where.BELOW if code else where), progress
        )
    neighbours = (before, after) if boundary is None else boundary.neighbours
    if neighbours != (before, after):
        difference, where, code = compare_dumps(*neighbours, progress)
    makers = compare_makers(*(side.dump for side in neighbours))
    if most and verdict is Verdict.WORSE:
        is_below = where is Where.BELOW or _is_below(*neighbours)
        remedies, flags_tried, edits_tried = try_changes(
            trial, (before, after), difference, is_below, most, progress
        )
    last_before = boundary.last_before if boundary is not None else before.jaxlib
    return Upgrade(
        program=trial.program.name or str(trial.program.file),
        device=trial.target.name,
        before=before,
        after=after,
        verdict=verdict,
        changes=changes,
        where=where,
        difference=difference,
        code=code,
        makers=makers,
        boundary=boundary,
        remedies=remedies,
        flags_tried=flags_tried,
        edits_tried=edits_tried,
        pin=f"jaxlib=={last_before}" if verdict is Verdict.WORSE else "",
    )


def _is_below(before: Side, after: Side) -> bool:
    """Return whether the measured time differs, and no figure of the HLO does likewise."""
    verdicts = {change.figure: change.verdict for change in compare_figures(before, after)}
    measured = verdicts[Figure.MEASURED_TIME]
    return measured is not Verdict.SAME and measured not in (
        verdicts[figure] for figure in (Figure.TIME, Figure.BYTES, Figure.LAUNCHES)
    )


def _first(changes: Sequence[Change], where: Where) -> Figure | Where:
    """Return what to follow: the figure that decides the verdict, else the place."""
    return next((change.figure for change in differing(changes)), where)
