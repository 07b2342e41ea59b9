"""Compiles a program with two releases of the compiler, and says what that changed, where, since
when, and what gets it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from fusionscope.capture.capture import capture
from fusionscope.capture.installation import find_installation
from fusionscope.capture.targets import Program, Target
from fusionscope.compare.difference import Difference, ModuleDifference, compare
from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import Facts
from fusionscope.passes.overrides import PairPattern
from fusionscope.progress import Progress, silent
from fusionscope.upgrade.below import CodeChange, compare_code
from fusionscope.upgrade.environments import find_python, release_number, releases_between
from fusionscope.upgrade.figures import (
    Change,
    Figure,
    Side,
    Verdict,
    compare_figures,
    is_fused,
    judge,
    overall,
    side_of,
)
from fusionscope.upgrade.remedies import Remedy, try_flags
from fusionscope.upgrade.walk import Boundary, find_boundary

_CODE = "--xla_dump_emitter_re=.*"
_TAKES_CODE = (0, 9)  # earlier compilers always dump code, and refuse the flag


class Where(StrEnum):
    """The place of a difference."""

    NOWHERE = "nowhere"
    LOWERING = "lowering"  # jax hands another program to the compiler
    PASSES = "passes"
    BELOW = "below"  # the HLO is the same


class Upgrade(Facts, frozen=True, kw_only=True, tag_field="schema", tag="fusionscope.upgrade/1"):
    """What an upgrade changed.

    program: what was compiled
    device: what it was compiled for
    before: the program with the first release
    after: the program with the second release
    verdict: ``same``, ``better`` or ``worse``, by the first of ``changes`` that differs
    changes: all figures of both sides
    where: ``lowering`` if the compiler gets another program, ``passes`` if they make another of it,
        ``below`` if the final HLO is the same and code of kernels differs, otherwise ``nowhere``
    code: traits of kernels' code that differ, if the final HLO is the same; null if the dumps share
        no code
    boundary: the releases between which it changed; null if that was not asked
    remedies: flags that get it back at least in part, the best first
    flags_tried: how many flags were compiled
    """

    internal: ClassVar[tuple[str, ...]] = ("difference",)

    program: str
    device: str
    before: Side
    after: Side
    verdict: Verdict
    changes: tuple[Change, ...]
    where: Where
    difference: Difference
    code: tuple[CodeChange, ...] | None
    boundary: Boundary | None = None
    remedies: tuple[Remedy, ...] = ()
    flags_tried: int = 0


class Trial(Facts, frozen=True, kw_only=True):
    """What is compiled, for what, into which folder."""

    program: Program
    target: Target
    folder: Path
    flags: tuple[str, ...] = ()
    limit_s: float = 600.0

    def compile(self, python: str, name: str, more: Sequence[str] = ()) -> Side:
        """Compile with the Python or release ``python`` into the folder ``name``. Raises
        ``UnusableInput`` if there is no such Python, or nothing comes of it.
        """
        interpreter = find_python(python, self.target)
        jaxlib = find_installation(interpreter, self.limit_s).versions.get("jaxlib", "0")
        code = [_CODE] if release_number(jaxlib) >= _TAKES_CODE else []
        captured = capture(
            self.program,
            self.target,
            self.folder / name,
            flags=[*code, *self.flags, *more],
            python=interpreter,
            limit_s=self.limit_s,
        )
        if not captured.has_stages:
            raise UnusableInput(f"jaxlib {jaxlib}: {captured.problem}")
        return side_of(captured, interpreter, self.limit_s)


def upgrade(
    trial: Trial,
    pythons: tuple[str, str],
    *,
    by: Figure | PairPattern | None = None,
    bisects: bool = False,
    most_flags: int = 0,
    progress: Progress = silent,
) -> Upgrade:
    """Compare what two ``pythons`` make of a program: paths, or releases of jaxlib.

    If it ``bisects``, the releases between them are walked: ``by`` is what is followed, by default
    the figure that decides the verdict. Up to ``most_flags`` flags are tried if it is worse. Raises
    ``UnusableInput`` if one of the two cannot compile it, or there is nothing to follow.
    """
    before, after = _compile_both(trial, pythons, progress)
    changes = compare_figures(before, after)
    difference, where, code = _compare(before, after, progress)
    boundary: Boundary | None = None
    remedies: tuple[Remedy, ...] = ()
    flags_tried = 0
    if bisects:
        boundary = _walk(trial, (before, after), by or _first(changes, where), progress)
    if most_flags and overall(changes) is Verdict.WORSE:
        remedies, flags_tried = try_flags(
            (before, after), difference, most_flags, trial.compile, progress
        )
    return Upgrade(
        program=trial.program.name or str(trial.program.file),
        device=trial.target.name,
        before=before,
        after=after,
        verdict=overall(changes),
        changes=changes,
        where=where,
        difference=difference,
        code=code,
        boundary=boundary,
        remedies=remedies,
        flags_tried=flags_tried,
    )


def _compile_both(trial: Trial, pythons: tuple[str, str], progress: Progress) -> tuple[Side, Side]:
    """Compile with both, and again if one seems to take longer: the first compilation with an
    interpreter also reads its libraries.
    """
    progress(f"compiling with {pythons[0]}")
    before = trial.compile(pythons[0], "from")
    progress(f"compiling with {pythons[1]}")
    after = trial.compile(pythons[1], "to")
    if judge(Figure.COMPILE_TIME, before, after) is not Verdict.SAME:
        progress("compiling again")
        before = before.at_least(trial.compile(pythons[0], "from-again"))
        after = after.at_least(trial.compile(pythons[1], "to-again"))
    return before, after


def _compare(
    before: Side, after: Side, progress: Progress
) -> tuple[Difference, Where, tuple[CodeChange, ...] | None]:
    """Return what differs between two dumps, and where: first HLO, then code."""
    difference = compare(before.dump, after.dump, progress=progress)
    for module in difference.modules:
        if not is_same_program(module):
            divergence = module.first_divergence
            is_lowered = divergence is not None and divergence.last_same is None
            return difference, Where.LOWERING if is_lowered else Where.PASSES, None
    code = compare_code(before.dump, after.dump)
    return difference, Where.BELOW if code else Where.NOWHERE, code


def is_same_program(module: ModuleDifference) -> bool:
    """Return whether two modules differ in nothing that is run: fields that one release writes with
    their default and the other leaves out, and notes of the framework.
    """
    return not (module.outcomes or module.fusions or module.lost or module.gained) and all(
        name == "frontend_attributes" or {old or "none", new or "none"} <= _DEFAULTS
        for fields in (module.header, *(edit.fields or _ONE_SIDE for edit in module.edits))
        for name, old, new in fields
    )


# What fields of protos are if nothing sets them, as JSON writes it.
_DEFAULTS = frozenset({"none", "false", "0", '"0"', "[]", '""', "{}"})
_ONE_SIDE = (("instruction", "", "there"),)  # an edit that adds or removes one


def _first(changes: Sequence[Change], where: Where) -> Figure | Where:
    """Return what to follow: the figure that decides the verdict, else the place."""
    differing = (change.figure for change in changes if change.verdict is not Verdict.SAME)
    return next(differing, where)


def _walk(
    trial: Trial,
    ends: tuple[Side, Side],
    by: Figure | PairPattern | Where,
    progress: Progress,
) -> Boundary | None:
    """Return since when the program is as with the last release; None if nothing differs."""
    if by is Where.NOWHERE:
        return None
    if isinstance(by, Figure) and judge(by, *ends) is Verdict.SAME:
        raise UnusableInput(f"{by.replace('-', ' ')} is the same with both releases")
    first, last = (end.jaxlib for end in ends)
    fused = [is_fused(end, by) for end in ends] if isinstance(by, PairPattern) else []
    if fused and fused[0] == fused[1]:
        words = {None: "not there", True: "fused", False: "not fused"}[fused[0]]
        raise UnusableInput(f"{by} is {words} with both releases")

    def is_after(side: Side) -> bool:
        if isinstance(by, PairPattern):
            return is_fused(side, by) != fused[0]
        if isinstance(by, Where):
            return _compare(ends[0], side, progress)[1] is not Where.NOWHERE
        old, new, value = (end.figure(by) for end in (*ends, side))
        if old is None or new is None or value is None:
            raise UnusableInput(f"the dump of {side.jaxlib} does not show {by}")
        return abs(value - new) < abs(value - old)

    def compile_with(release: str) -> Side:
        progress(f"compiling with {release}")
        side = trial.compile(release, release)
        if by is Figure.COMPILE_TIME:
            side = side.at_least(trial.compile(release, f"{release}-again"))
        return side

    words = "the code of kernels" if by is Where.BELOW else "HLO"
    releases = releases_between(first, last, ends[1].python)
    return find_boundary(
        words if isinstance(by, Where) else str(by), ends, releases, compile_with, is_after
    )
