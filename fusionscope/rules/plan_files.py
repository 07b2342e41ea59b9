"""Changes of rules in TOML files, for one program or for any."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fusionscope.errors import UnusableInput, quoted
from fusionscope.rules.changes import Changes, read_changes
from fusionscope.system.files import read_text

_KEYS = ("set", "disable", "allow", "forbid", "kernel", "module", "dump")


@dataclass(frozen=True, slots=True)
class PlanFile:
    """Changes, the name of the module that they are for, and the dump that this is in; None where
    they are for any."""

    changes: Changes
    module: str | None = None
    dump: Path | None = None


def read_plan(path: Path) -> PlanFile:
    """A table ``set``, lists ``disable``, ``allow`` and ``forbid``, tables ``[[kernel]]`` with a
    list ``members``, and texts ``module`` and ``dump``, the latter a path from where the file lies.

    Raises ``UnusableInput``.
    """
    try:
        content = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # a number may be too long, a list too deep
        raise UnusableInput(f"not TOML: {error}", file=str(path)) from None
    for key in content:
        if key not in _KEYS:
            raise UnusableInput(
                f"unknown key {quoted(key)}, expected one of {', '.join(_KEYS)}", file=str(path)
            )
    values = [f"{key}={value}" for key, value in _flat(content.get("set", {}), path).items()]
    lists = [_texts(content, key, path) for key in _KEYS[1:4]]
    for key in ("module", "dump"):
        if not isinstance(content.get(key), str | None):
            raise UnusableInput(f"{quoted(key)} is no text", file=str(path))
    dump = path.parent / content["dump"] if "dump" in content else None
    try:
        changes = read_changes(values, *lists)
    except UnusableInput as error:
        raise UnusableInput(error.problem, file=str(path)) from None
    changes = replace(changes, kernels=tuple(_kernels(content, path)))
    return PlanFile(changes, content.get("module"), dump)


def write_plan(plan: PlanFile, path: Path) -> str:
    """What ``read_plan`` reads as ``plan`` where it stands in ``path``."""
    changes = plan.changes
    lines = []
    if plan.module is not None:
        lines.append(f"module = {_quoted(plan.module)}")
    if plan.dump is not None:
        place = os.path.relpath(plan.dump.resolve(), path.resolve().parent)
        lines.append(f"dump = {_quoted(place)}")
    for key, values in (
        ("disable", changes.disabled),
        ("allow", tuple(map(str, changes.allowed))),
        ("forbid", tuple(map(str, changes.forbidden))),
    ):
        if values:
            lines.append(f"{key} = [{', '.join(map(_quoted, values))}]")
    if changes.thresholds:
        lines += ["", "[set]", *(f"{_quoted(f'{i}.{n}')} = {v}" for i, n, v in changes.thresholds)]
    for members in changes.kernels:
        lines += ["", "[[kernel]]", f"members = [{', '.join(map(_quoted, members))}]"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """JSON's strings are TOML's."""
    return json.dumps(text, ensure_ascii=False)


def _kernels(content: dict[str, Any], path: Path) -> Iterator[tuple[str, ...]]:
    tables = content.get("kernel", [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise UnusableInput("'kernel' is no list of tables, expected [[kernel]]", file=str(path))
    for table in tables:
        members = _texts(table, "members", path)
        if set(table) != {"members"} or not members:
            raise UnusableInput(
                "a [[kernel]] has one key, members = ['NAME', …], names of operations",
                file=str(path),
            )
        yield tuple(members)


def _flat(table: Any, path: Path) -> dict[str, Any]:
    """``{"cpu-concat": {"max_operands": 9}}`` and ``{"cpu-concat.max_operands": 9}`` alike."""
    if not isinstance(table, dict):
        raise UnusableInput("'set' is no table, expected [set] and RULE.NAME = N", file=str(path))
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found.update({f"{key}.{name}": inner for name, inner in value.items()})
        else:
            found[key] = value
    return found


def _texts(content: dict[str, Any], key: str, path: Path) -> list[str]:
    value = content.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UnusableInput(f"{quoted(key)} is no list of texts", file=str(path))
    return value
