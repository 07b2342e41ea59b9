"""Reads and writes TOML files with changes of rules, for one program or for any."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import tomli_w

from fusionscope.errors import UnusableInput
from fusionscope.rules.changes import Changes, read_changes
from fusionscope.system.user_files import read_toml


class _Kernel(msgspec.Struct, forbid_unknown_fields=True):
    members: Annotated[list[str], msgspec.Meta(min_length=1)]


class _Plan(msgspec.Struct, forbid_unknown_fields=True):
    """The contents of a file, see ``read_plan``."""

    set: dict[str, int | dict[str, int]] = {}
    disable: list[str] = []
    allow: list[str] = []
    forbid: list[str] = []
    kernel: list[_Kernel] = []
    module: str | None = None
    dump: str | None = None
    program: str | None = None


@dataclass(frozen=True, slots=True)
class PlanFile:
    """The changes in a file, the name of the module that they are for, and its dump; None if they
    are for any. ``program`` is a file with the HLO text of a program that computes the same as that
    of the dump: the changes are for it. It is None if they are for the dump itself.
    """

    changes: Changes
    module: str | None = None
    dump: Path | None = None
    program: Path | None = None


def read_plan(path: Path, *, takes_program: bool = False) -> PlanFile:
    """Read a table ``set``, lists ``disable``, ``allow`` and ``forbid``, tables ``[[kernel]]`` with
    a list ``members``, and strings ``module``, ``dump`` and ``program``. Relative paths start at
    the file's folder.

    Raises ``UnusableInput`` with the line, also for a ``program`` unless ``takes_program`` is set.
    """
    file = read_toml(path, _Plan)
    plan = file.value
    if plan.program is not None and not takes_program:
        with file.at("program"):
            raise UnusableInput(
                "the plan is for a rewritten program, which only `fusionscope rerun` and "
                "`fusionscope.apply` compile"
            )
    with file.at("set"):
        changes = read_changes(set_=_flat(plan.set))
    with file.at("disable"):
        changes |= read_changes(disable=plan.disable)
    with file.at("allow"):
        changes |= read_changes(allow=plan.allow)
    with file.at("forbid"):
        changes |= read_changes(forbid=plan.forbid)
    return PlanFile(
        replace(changes, kernels=tuple(tuple(kernel.members) for kernel in plan.kernel)),
        plan.module,
        None if plan.dump is None else path.parent / plan.dump,
        None if plan.program is None else path.parent / plan.program,
    )


def write_plan(plan: PlanFile, path: Path) -> str:
    """Return text that ``read_plan`` reads as ``plan`` from ``path``."""
    changes = plan.changes
    content: dict[str, Any] = {
        "module": plan.module,
        "dump": _relative(plan.dump, path),
        "program": _relative(plan.program, path),
        "disable": changes.disabled,
        "allow": list(map(str, changes.allowed)),
        "forbid": list(map(str, changes.forbidden)),
        "set": {f"{id}.{name}": value for id, name, value in changes.thresholds},
        "kernel": [{"members": members} for members in changes.kernels],
    }
    return tomli_w.dumps({key: value for key, value in content.items() if value})


def _relative(file: Path | None, path: Path) -> str | None:
    return None if file is None else os.path.relpath(file.resolve(), path.resolve().parent)


def _flat(table: dict[str, int | dict[str, int]]) -> Iterator[str]:
    """Yield ``{"cpu-concat": {"max_operands": 9}}`` as the command line has it."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from (f"{key}.{name}={inner}" for name, inner in value.items())
        else:
            yield f"{key}={value}"
