"""Reads ``study.toml``, which lists the versions of a program to compare."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from fusionscope.errors import UnusableInput, quoted
from fusionscope.rules.changes import Changes, read_changes
from fusionscope.system.user_files import read_toml

FILE = "study.toml"
_NAME = re.compile(r"\w[\w-]*")
_HINT = "docs/study.md has one"

_Count = Annotated[int, msgspec.Meta(ge=1)]


class _StepTable(msgspec.Struct, forbid_unknown_fields=True):
    """A table ``[[steps]]``, see ``StudyStep``."""

    name: str
    what: str = ""
    program: str | None = None
    arguments: list[str] = []
    paper: str = ""
    of: str | None = None
    set: list[str] = []
    disable: list[str] = []
    allow: list[str] = []
    forbid: list[str] = []


class _StudyTable(msgspec.Struct, forbid_unknown_fields=True):
    """The contents of a file, see ``Study``."""

    steps: Annotated[list[_StepTable], msgspec.Meta(min_length=1)]
    title: str | None = None
    sizes: tuple[_Count, ...] = (1,)
    work: _Count = 1
    paper: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStep:
    """One version. ``program`` is a function as ``capture`` takes it, ``arguments`` its shapes,
    with ``{n}`` for the size. If ``of`` is given, it is that step's program, fused by ``changes``
    of the rules. ``paper`` is a published figure to print beside the measured one.
    """

    name: str
    what: str
    program: str
    arguments: tuple[str, ...]
    paper: str
    of: str | None
    changes: Changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study. The first of ``steps`` is the baseline of the others. ``work`` is how often one run
    does the unit of work, ``paper`` are further published figures, to print below.
    """

    folder: Path
    title: str
    sizes: tuple[int, ...]
    work: int
    paper: tuple[str, ...]
    steps: tuple[StudyStep, ...]


def read_study(folder: Path) -> Study:
    """Read a study. Raises ``UnusableInput`` with the file and, if it is known, the line."""
    file = read_toml(folder / FILE, _StudyTable, hint=_HINT)
    table = file.value
    steps: dict[str, StudyStep] = {}
    for index, step in enumerate(table.steps):
        with file.at("steps", index):
            steps[step.name] = _step(step, set(steps))
    return Study(
        folder=folder,
        title=folder.name if table.title is None else table.title,
        sizes=table.sizes,
        work=table.work,
        paper=tuple(table.paper),
        steps=tuple(steps.values()),
    )


def _step(table: _StepTable, before: set[str]) -> StudyStep:
    """Return a step after those named ``before``. Raises ``UnusableInput`` without a place."""
    name = table.name
    if not _NAME.fullmatch(name):  # also the name of its folder
        raise UnusableInput(f"name = {quoted(name)}, expected letters, digits, - and _")
    if name in before:
        raise UnusableInput(f"two steps are called {name}")
    if (table.of is None) == (table.program is None):
        raise UnusableInput(
            f"step {name}: expected either a program or the step that it is based on"
        )
    if table.of is not None and table.of not in before:
        raise UnusableInput(f"of = {quoted(table.of)}, expected a step before {name}")
    changes = read_changes(table.set, table.disable, table.allow, table.forbid)
    if bool(changes) != (table.of is not None):
        raise UnusableInput(
            f"step {name}: rules are changed in a step that is based on another one, and only there"
        )
    return StudyStep(
        name=name,
        what=table.what,
        program=table.program or "",
        arguments=tuple(table.arguments),
        paper=table.paper,
        of=table.of,
        changes=changes,
    )
