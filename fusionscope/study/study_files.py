"""The file that says which versions of a program are compared: ``study.toml`` in a folder."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionscope.errors import UnusableInput, shorten
from fusionscope.rules.changes import Changes, read_changes
from fusionscope.system.files import read_text

FILE = "study.toml"
_NAME = re.compile(r"\w[\w-]*")
_STEP = {"name", "what", "program", "arguments", "paper", "of", "set", "disable", "allow", "forbid"}
_STUDY = {"title", "sizes", "work", "paper", "steps"}
_CHANGES = ("set", "disable", "allow", "forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One version: ``program`` is a function as ``capture`` takes it, ``arguments`` its shapes,
    with ``{n}`` in the place of the size. Where ``of`` is given, it is that step's program fused
    by ``changes`` of the rules. ``paper`` is a figure from elsewhere to print beside ours."""

    name: str
    what: str
    program: str
    arguments: tuple[str, ...]
    paper: str
    of: str | None
    changes: Changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The first of ``steps`` is what the others are compared with. ``work`` is how often one run
    does what is counted, ``paper`` are further ones of its figures, to print below.
    """

    folder: Path
    title: str
    sizes: tuple[int, ...]
    work: int
    paper: tuple[str, ...]
    steps: tuple[Step, ...]


def read_study(folder: Path) -> Study:
    """Raises ``UnusableInput`` with file and, where it is known, line."""
    file = folder / FILE
    try:
        content = tomllib.loads(read_text(file))
    except (ValueError, RecursionError) as error:  # a number may be too long, a list too deep
        raise UnusableInput(f"no TOML: {error}", file=str(file)) from None
    try:
        return _study(folder, content)
    except _Wrong as wrong:
        raise UnusableInput(str(wrong), file=str(file), hint="docs/study.md has one") from None


class _Wrong(Exception):
    """What is wrong with the content of a file, in words."""


def _study(folder: Path, content: dict[str, Any]) -> Study:
    _know(content, _STUDY, "the study")
    steps = content.get("steps", [])
    if not isinstance(steps, list) or not steps:
        raise _Wrong("no [[steps]] in it")
    read = [_step(entry, number) for number, entry in enumerate(steps, 1)]
    names = [step.name for step in read]
    for place, step in enumerate(read):
        if step.name in names[:place]:
            raise _Wrong(f"two steps are called {shorten(step.name)}")
        if step.of is not None and step.of not in names[:place]:
            raise _Wrong(f"step {step.name} is of {shorten(step.of)}, expected a step before it")
    return Study(
        folder=folder,
        title=_of_type(content.get("title", folder.name), str, "title"),
        sizes=tuple(_number(size, "sizes") for size in _list(content.get("sizes", [1]), "sizes")),
        work=_number(content.get("work", 1), "work"),
        paper=tuple(
            _of_type(each, str, "paper") for each in _list(content.get("paper", []), "paper")
        ),
        steps=tuple(read),
    )


def _step(entry: Any, number: int) -> Step:
    if not isinstance(entry, dict):
        raise _Wrong(f"step {number} is no table")
    name = _of_type(entry.get("name", ""), str, f"name of step {number}")
    if not name:
        raise _Wrong(f"step {number} has no name")
    if not _NAME.fullmatch(name):  # that of a folder, too
        raise _Wrong(f"step {number} is called {shorten(name)}, expected letters, digits, - and _")
    _know(entry, _STEP, f"step {name}")
    of = entry.get("of")
    if (of is None) == ("program" not in entry):
        raise _Wrong(f"step {name}: expected either a program or the step that it is of")
    words = {
        key: [_of_type(e, str, key) for e in _list(entry.get(key, []), key)] for key in _CHANGES
    }
    try:
        changes = read_changes(words["set"], words["disable"], words["allow"], words["forbid"])
    except UnusableInput as error:
        raise _Wrong(f"step {name}: {error}") from None
    if bool(changes) != (of is not None):
        raise _Wrong(f"step {name}: rules are changed where it is of another step, and only there")
    return Step(
        name=name,
        what=_of_type(entry.get("what", ""), str, f"what of step {name}"),
        program=_of_type(entry.get("program", ""), str, f"program of step {name}"),
        arguments=tuple(
            _of_type(e, str, "arguments") for e in _list(entry.get("arguments", []), "arguments")
        ),
        paper=_of_type(entry.get("paper", ""), str, f"paper of step {name}"),
        of=None if of is None else _of_type(of, str, f"of in step {name}"),
        changes=changes,
    )


def _know(table: dict[str, Any], known: set[str], where: str) -> None:
    for key in table:
        if key not in known:
            expected = ", ".join(sorted(known))
            raise _Wrong(f"{where} has {shorten(key)}, expected one of {expected}")


def _list(value: Any, what: str) -> list[Any]:
    found: list[Any] = _of_type(value, list, what)
    return found


def _number(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _Wrong(f"{what}: expected whole numbers above 0")
    return value


def _of_type(value: Any, kind: type[Any], what: str) -> Any:
    if not isinstance(value, kind):
        raise _Wrong(f"{what} is {shorten(str(value))}, expected {kind.__name__}")
    return value
