"""Reads what is expected: a TOML file, or the table ``tool.fusionscope`` of a pyproject.

    [[expect]]
    fused = "exponential -> reduce"
    where = { module = "jit_step", device = "h100" }
    message = "the softmax is one kernel"

Each ``[[expect]]`` has one key of ``EXPECTATIONS``, and may have ``where`` and ``message``. Each
``[[allow]]`` has one key of ``ALLOWANCES``, ``until`` and ``why``. ``[[program]]`` and
``[[target]]`` are a matrix: what to compile, and for what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fusionscope.check.allowances import ALLOWANCES, Allowance
from fusionscope.check.expectation import Expectation
from fusionscope.check.expectations import EXPECTATIONS
from fusionscope.check.growth import MaxGrowth
from fusionscope.check.matrix import Matrix, MatrixProgram, MatrixTarget
from fusionscope.check.pair_expectations import NotRefused
from fusionscope.check.where import Where
from fusionscope.errors import UnusableInput, expected_one_of, quoted
from fusionscope.rules.messages import UNKNOWN, rule_ids
from fusionscope.system.files import is_there
from fusionscope.system.user_files import UserFile, read_toml

_PYPROJECT = "pyproject.toml"

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Where = msgspec.defstruct(
    "_Where",
    [(field.name, _Text | None, None) for field in fields(Where)],
    forbid_unknown_fields=True,
)
_Expect = msgspec.defstruct(
    "_Expect",
    [
        *((key, Any, msgspec.UNSET) for key in EXPECTATIONS),
        ("where", _Where, msgspec.field(default_factory=_Where)),
        ("message", str, ""),
    ],
    forbid_unknown_fields=True,
)
_Allow = msgspec.defstruct(
    "_Allow",
    [
        ("until", date),
        ("why", _Text),
        *((key, Any, msgspec.UNSET) for key in ALLOWANCES),
        ("where", _Where, msgspec.field(default_factory=_Where)),
    ],
    forbid_unknown_fields=True,
)


class _Program(msgspec.Struct, forbid_unknown_fields=True):
    function: _Text
    name: _Text | None = None
    arguments: list[_Text] = []
    targets: list[_Text] = []


class _Target(msgspec.Struct, forbid_unknown_fields=True):
    device: _Text
    name: _Text | None = None
    python: _Text | None = None
    flags: list[_Text] = []


_File = msgspec.defstruct(
    "_File",
    [
        (name, list[kind], msgspec.field(default_factory=list))  # type: ignore[valid-type]
        for name, kind in (
            ("expect", _Expect),
            ("allow", _Allow),
            ("program", _Program),
            ("target", _Target),
        )
    ],
    forbid_unknown_fields=True,
)


# The table of a project also has defaults of options, which ``cli/defaults.py`` reads.
_Project = msgspec.defstruct("_Project", [], bases=(_File,), forbid_unknown_fields=False)


@dataclass(frozen=True, slots=True)
class Expected:
    """The contents of a file. ``matrix`` is None if it has none."""

    expectations: tuple[Expectation, ...] = ()
    allowances: tuple[Allowance, ...] = ()
    matrix: Matrix | None = None


def read_expected(path: Path) -> Expected:
    """Read a file. Raises ``UnusableInput`` with the line of an invalid key or value."""
    is_project = path.name == _PYPROJECT
    file: UserFile[Any] = (
        read_toml(path, _Project, within=("tool", "fusionscope"))
        if is_project
        else read_toml(path, _File)
    )
    table = file.value
    if not (table.expect or table.program):
        raise file.error("has no expectations, expected [[expect]] or [[program]] tables")
    return Expected(tuple(_expectations(file)), tuple(_allowances(file)), _matrix(file))


def read_expectations(path: Path) -> tuple[Expectation, ...]:
    """Read the expectations in a file. Raises ``UnusableInput`` if there are none."""
    expectations = read_expected(path).expectations
    if not expectations:
        raise UnusableInput("has no expectations, expected [[expect]] tables", file=str(path))
    return expectations


def _expectations(file: UserFile[Any]) -> Iterator[Expectation]:
    for index, table in enumerate(file.value.expect):
        key, value = _only(file, "expect", index, table, EXPECTATIONS)
        kind, place = EXPECTATIONS[key], ("expect", index, key)
        for id in value if kind is NotRefused else ():
            if id not in rule_ids() and id != UNKNOWN:
                close = expected_one_of(id, sorted(rule_ids()))
                raise file.error(f"no reason is called {quoted(id)}, {close}", *place)
        where = Where(**msgspec.structs.asdict(table.where))
        values = [{k: v} for k, v in value.items()] if kind is MaxGrowth else [value]
        for item in values:
            yield kind(item, where, table.message, file.line(*place))


def _allowances(file: UserFile[Any]) -> Iterator[Allowance]:
    for index, table in enumerate(file.value.allow):
        key, value = _only(file, "allow", index, table, ALLOWANCES)
        yield ALLOWANCES[key](
            value=value,
            where=Where(**msgspec.structs.asdict(table.where)),
            until=table.until,
            why=table.why,
            place=f"{file.path}:{file.line('allow', index)}",
        )


def _only(
    file: UserFile[Any],
    name: str,
    index: int,
    table: Any,
    kinds: Mapping[str, type[Expectation] | type[Allowance]],
) -> tuple[str, Any]:
    """Return the key of one of ``kinds`` that a table has, and its valid value."""
    keys = {key: value for key in kinds if (value := getattr(table, key)) is not msgspec.UNSET}
    if len(keys) != 1:
        problem_found = f"has {' and '.join(keys)}" if keys else "says nothing"
        article = "an" if name[0] in "aeiou" else "a"
        problem = f"{article} [[{name}]] {problem_found}, expected one of {', '.join(kinds)}"
        raise file.error(problem, name, index)
    ((key, value),) = keys.items()
    if expected := kinds[key].expected(value):
        raise file.error(f"{key} = {quoted(value)}, expected {expected}", name, index, key)
    return key, value


def _matrix(file: UserFile[Any]) -> Matrix | None:
    table = file.value
    if not (table.program or table.target):
        return None
    for name, alternative in (("program", table.target), ("target", table.program)):
        if not alternative:
            there = "target" if name == "program" else "program"
            raise file.error(f"has [[{name}]] tables, and no [[{there}]]", name, 0)
    folder = file.path.absolute().parent
    targets = [
        MatrixTarget(
            entry.name or Path(entry.device).stem.replace(":", "-"),
            _in_folder(entry.device, folder),
            tuple(f"--{flag.removeprefix('--')}" for flag in entry.flags),
            _in_folder(entry.python, folder) if entry.python is not None else None,
        )
        for entry in table.target
    ]
    _require_names(file, "target", [target.name for target in targets])
    target_names = [target.name for target in targets]
    programs = []
    for index, entry in enumerate(table.program):
        for name in entry.targets:
            if name not in target_names:
                problem = (
                    f"no target is called {quoted(name)}, {expected_one_of(name, target_names)}"
                )
                raise file.error(problem, "program", index, "targets")
        name = entry.name or entry.function.rpartition(":")[2]
        programs.append(
            MatrixProgram(
                name, entry.function, tuple(entry.arguments), tuple(entry.targets or target_names)
            )
        )
    _require_names(file, "program", [program.name for program in programs])
    return Matrix(folder, file.path.name, tuple(programs), tuple(targets))


def _require_names(file: UserFile[Any], kind: str, names: list[str]) -> None:
    """Raises ``UnusableInput`` if two have the same name, or one cannot be that of a folder."""
    counts = Counter(names)
    for index, name in enumerate(names):
        if counts[name] > 1:
            problem = f"two {kind}s are called {quoted(name)}, expected a name = for each"
            raise file.error(problem, kind, index)
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            problem = f"name = {quoted(name)}, expected letters, digits, ., - and _"
            raise file.error(problem, kind, index)


def _in_folder(name: str, folder: Path) -> str:
    """Return the path of a file in the folder; any other name stays."""
    path = folder / name
    return str(path) if "/" in name or is_there(path) else name
