"""A small file that records how modules were, and the comparison of dumps with it.

A module is identified by its name, its arguments and its device, or by its program and target in a
matrix.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fnmatch import fnmatchcase
from itertools import zip_longest
from operator import ne
from pathlib import Path
from typing import Any, Literal

import msgspec

from fusionscope.check.as_before import EXACT, IN_BASELINE, AsBefore, Origin, Tolerance
from fusionscope.check.record import ModuleKey, ModuleRecord, key_of, record_of
from fusionscope.check.subject import Cell, Subject
from fusionscope.dump.names import without_build
from fusionscope.grouping import grouped
from fusionscope.system.user_files import read_json

SCHEMA = "fusionscope.baseline/2"

Recorded = tuple[ModuleKey, ModuleRecord]


def record_all(cells: Iterable[Cell]) -> tuple[Recorded, ...]:
    """Return the records of all modules, including several with the same key."""
    return tuple(
        (key_of(subject), record_of(subject.facts)) for cell in cells for subject in cell.subjects
    )


def write_baseline(modules: Iterable[Recorded]) -> str:
    """Return records as text, a sorted line for each pair and kernel, which git can merge."""
    lines = ["{", f' "schema": {json.dumps(SCHEMA)},', ' "modules": [']
    for last, (key, module) in _with_last(sorted(modules, key=lambda module: module[0])):
        lines.append("  {")
        values = {**key._asdict(), **asdict(module)}
        for name in _ONE_LINE:
            if values[name] is not None and (values[name] or name not in _OMITTED):
                lines.append(f"   {json.dumps(name)}: {json.dumps(values[name])},")
        for part in _TABLES:
            lines.append(f"   {json.dumps(part)}: {{")
            for end, (inner, value) in _with_last(sorted(values[part].items())):
                lines.append(f"    {json.dumps(inner)}: {json.dumps(value)}{'' if end else ','}")
            lines.append("   }" if part == _TABLES[-1] else "   },")
        lines.append("  }" if last else "  },")
    return "\n".join([*lines, " ]", "}"]) + "\n"


_ONE_LINE = (
    "program", "target", "name", "arguments", "device", "launches", "bytes_moved", "peak_bytes",
    "time_us", "headroom_us", "floor_launches", "spill_bytes",
)  # fmt: skip
_OMITTED = ("program", "target", "floor_launches")  # if there are none
_TABLES = ("kernels", "libraries", "passes", "pairs")


def _with_last(items: Iterable[Any]) -> Iterator[tuple[bool, Any]]:
    items = list(items)
    for number, item in enumerate(items, 1):
        yield number == len(items), item


@dataclass(frozen=True, slots=True)
class Baseline:
    """Recorded modules, in the order of the file."""

    modules: tuple[Recorded, ...]
    tolerance: Tolerance = EXACT
    origin: Origin = IN_BASELINE

    def only(self, pattern: str) -> Baseline:
        """Return the modules that a glob selects: by their program in a matrix, or their name."""
        return replace(
            self, modules=tuple(module for module in self.modules if is_named(module, pattern))
        )

    def compare(self, cells: Sequence[Cell]) -> Iterator[tuple[AsBefore, Subject | None]]:
        """Yield each module with its recorded one. Of several with one key, unchanged ones are
        paired first, then the others in order. A module may be only in the baseline, or only in a
        dump.
        """
        before = grouped((key.identity, (key, module)) for key, module in self.modules)
        now = grouped(
            (key_of(subject).identity, subject) for cell in cells for subject in cell.subjects
        )
        for identity in dict.fromkeys([*before, *now]):
            unmatched, changed = list(before[identity]), []
            for subject in now[identity]:
                record_now = record_of(subject.facts)
                same = next(
                    (recorded for recorded in unmatched if record_now.is_same(recorded[1])), None
                )
                if same is not None:
                    unmatched.remove(same)
                    yield self._expectation(*same), subject
                else:
                    changed.append(subject)
            for old, new in zip_longest(unmatched, changed):
                if old is not None:
                    key, record = old
                    yield self._expectation(key, record, _find_nearest(key, now)), new
                else:
                    key = key_of(new)
                    yield self._expectation(key, None, _find_nearest(key, before)), new

    def _expectation(
        self, key: ModuleKey, old: ModuleRecord | None, nearest: ModuleKey | None = None
    ) -> AsBefore:
        return AsBefore(
            old, module=key, tolerance=self.tolerance, nearest=nearest, origin=self.origin
        )


def is_named(recorded: Recorded, pattern: str) -> bool:
    """Return whether a glob selects a record."""
    key, _ = recorded
    return fnmatchcase(key.program or key.name, pattern)


def _find_nearest(key: ModuleKey, candidates: Iterable[ModuleKey]) -> ModuleKey | None:
    """Return the key of that name that has most in common with ``key``."""
    same_name = [
        candidate
        for candidate in candidates
        if candidate.name == key.identity.name and candidate != key.identity
    ]
    return min(same_name, key=lambda candidate: sum(map(ne, key, candidate)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Module(ModuleRecord):
    """A module in the file: its key, and its record."""

    name: str
    arguments: tuple[str, ...]
    device: str
    program: str = ""
    target: str = ""


class _File(msgspec.Struct):
    schema: Literal["fusionscope.baseline/2"]
    modules: list[_Module]


def read_baseline(path: Path, tolerance: Tolerance) -> Baseline:
    """Read a baseline. Raises ``UnusableInput`` with the line."""
    file = read_json(path, _File, hint="--update rewrites it")
    names = [field.name for field in fields(ModuleRecord)]
    return Baseline(
        tuple(
            (
                ModuleKey(
                    without_build(module.name),
                    module.arguments,
                    module.device,
                    module.program,
                    module.target,
                ),
                ModuleRecord(**{name: getattr(module, name) for name in names}),
            )
            for module in file.value.modules
        ),
        tolerance,
    )
