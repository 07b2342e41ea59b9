"""Compiles a program with one release, or with both."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from math import sqrt
from pathlib import Path
from shutil import rmtree

from msgspec.structs import replace

from fusionscope.capture.capture import CRASHED, capture
from fusionscope.capture.installation import find_installation
from fusionscope.capture.targets import Program, Target
from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import Facts
from fusionscope.progress import Progress
from fusionscope.upgrade.environments import (
    add_package,
    find_python,
    is_release,
    release_number,
)
from fusionscope.upgrade.figures import Figure, Side, Verdict, judge, side_of

_CODE = "--xla_dump_emitter_re=.*"
_MISSING = re.compile(r"No module named '(\w+)")
_STARTS_S = 30.0  # to import jax and trace the program
_TAKES_CODE = (0, 9)  # earlier compilers always dump code, and refuse the flag


class Trial(Facts, frozen=True, kw_only=True):
    """What is compiled, for what, into which folder, and whether it also ``runs``."""

    program: Program
    target: Target
    folder: Path
    flags: tuple[str, ...] = ()
    limit_s: float = 600.0
    runs: bool = False

    def compile(self, python: str, name: str, more: Sequence[str] = ()) -> Side:
        """Compile with the Python or release ``python`` into the folder ``name``. The environment
        of a release gets the packages that the program imports. Raises ``UnusableInput`` if there
        is no such Python, or nothing comes of it.
        """
        modules: set[str] = set()
        while True:
            try:
                return self._compile(python, name, more)
            except UnusableInput as error:
                match = _MISSING.search(str(error))
                if match is None or not is_release(python) or (module := match[1]) in modules:
                    raise
                modules.add(module)
                if not add_package(module, python, self.target):
                    interpreter = find_python(python, self.target)
                    hint = f"{interpreter} -m pip install PACKAGE jaxlib=={python} adds its package"
                    raise UnusableInput(str(error), hint=hint) from error
                rmtree(self.folder / name)

    def _compile(self, python: str, name: str, more: Sequence[str]) -> Side:
        interpreter = find_python(python, self.target)
        jaxlib = find_installation(interpreter, self.limit_s).versions.get("jaxlib", "0")
        code = [_CODE] if release_number(jaxlib) >= _TAKES_CODE else []
        compile_with = partial(
            capture,
            self.program,
            self.target,
            self.folder / name,
            python=interpreter,
            limit_s=self.limit_s,
        )
        captured = None
        try:
            captured = compile_with(flags=[*code, *self.flags, *more])
        except UnusableInput as error:
            if CRASHED not in str(error) or not code:
                raise
        if captured is None or (code and CRASHED in captured.problem):
            # Compilers since 0.10 may die of dumping code of several modules at once.
            rmtree(self.folder / name)
            captured = compile_with(flags=[*self.flags, *more])
        if not captured.has_stages:
            raise UnusableInput(captured.problem)
        return side_of(captured, interpreter, self.limit_s)


def halfway(before: float, after: float) -> float:
    """Return the time to compile that is as many times the one as the other is times it."""
    return sqrt(before * after)


def with_less_time(trial: Trial, sides: tuple[Side, Side]) -> Trial:
    """Return a trial that waits no longer than it takes to tell which of ``sides`` another
    compilation is like: a compiler that hangs is not waited for again.
    """
    before, after = (side.compile_s for side in sides)
    if before is None or after is None:
        return trial
    return replace(trial, limit_s=min(trial.limit_s, halfway(before, after) + _STARTS_S))


def compile_both(trial: Trial, pythons: tuple[str, str], progress: Progress) -> tuple[Side, Side]:
    """Compile with both, and again if one seems to take longer: the first compilation with an
    interpreter also reads its libraries.
    """
    before, after = (
        _compile(trial, python, name, progress)
        for python, name in zip(pythons, ("from", "to"), strict=True)
    )
    if judge(Figure.COMPILE_TIME, before, after) is not Verdict.SAME:
        progress("compiling again")
        before, after = (
            side if side.problem else side.at_least(trial.compile(python, f"{name}-again"))
            for side, python, name in zip((before, after), pythons, ("from", "to"), strict=True)
        )
    return before, after


def _compile(trial: Trial, python: str, name: str, progress: Progress) -> Side:
    progress(f"compiling with {python}")
    try:
        return trial.compile(python, name)
    except UnusableInput as error:
        raise UnusableInput(f"with {python}: {error}") from error
