"""Which modules, and which parts of them, an expectation is about."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import PurePath

from fusionscope.dump.names import without_build
from fusionscope.facts.result import KernelFacts, ModuleFacts, Operation, PairFacts
from fusionscope.hlo import SourceLocation

_FUNCTION = re.compile(r"[\w.*?]+")


@dataclass(frozen=True, slots=True)
class Where:
    """Selects modules and parts of them. Globs are those of the shell. ``device`` is a part of the
    name of the device or backend. ``program`` and ``target`` are names in a matrix. ``source`` is
    ``FILE``, ``FILE:LINE`` or ``FILE:FUNCTION``, where the file may be the end of the path. None
    matches everything.
    """

    module: str | None = None
    computation: str | None = None
    device: str | None = None
    op_name: str | None = None
    source: str | None = None
    program: str | None = None
    target: str | None = None

    def __str__(self) -> str:
        conditions = ((field.name, getattr(self, field.name)) for field in fields(Where))
        return ", ".join(f"{name} {value}" for name, value in conditions if value is not None)

    def has_module(self, facts: ModuleFacts, program: str = "", target: str = "") -> bool:
        device_text = f"{facts.backend} {facts.device}".lower()
        return (
            (self.module is None or is_named(facts.name, self.module))
            and (self.device is None or self.device.lower() in device_text)
            and (self.program is None or fnmatchcase(program, self.program))
            and (self.target is None or fnmatchcase(target, self.target))
        )

    @property
    def is_part(self) -> bool:
        """Whether it selects parts of modules."""
        return (self.computation, self.op_name, self.source) != (None, None, None)

    @property
    def function(self) -> str | None:
        """The name of the function in ``source``."""
        file, _, function = (self.source or "").rpartition(":")
        return (
            function
            if file and not function.isdecimal() and _FUNCTION.fullmatch(function)
            else None
        )

    def within(self, stacks: Mapping[str, Sequence[SourceLocation]]) -> Where:
        """Return this, with the operations in a function, and in what it calls, by name. ``stacks``
        are the call stacks of the operations of a module, by their names.
        """
        if self.function is None or self.source is None:
            return self
        file, function = self._file, self.function
        names = frozenset(
            name
            for name, stack in stacks.items()
            if any(
                _is_from(frame.file, file) and _is_called(frame.function, function)
                for frame in stack
            )
        )
        return _WhereNamed(**{f.name: getattr(self, f.name) for f in fields(Where)}, names=names)

    def has_pair(self, pair: PairFacts) -> bool:
        return self.has_computation(pair.computation) and any(
            map(self.has_operation, (pair.producer, pair.consumer))
        )

    def has_kernel(self, kernel: KernelFacts) -> bool:
        return self.has_computation(kernel.computation) and self.has_place(
            kernel.name, kernel.op_name, kernel.source
        )

    def has_operation(self, operation: Operation) -> bool:
        """Return whether an operation matches, as far as its source is known."""
        return self.has_place(operation.name, operation.op_name, operation.source)

    def has_computation(self, name: str) -> bool:
        return self.computation is None or fnmatchcase(name, self.computation)

    def has_place(self, name: str, op_name: str | None, source: str | None) -> bool:
        """Return whether the operation ``name`` matches, which is at ``source``."""
        if self.op_name is not None and not fnmatchcase(op_name or "", self.op_name):
            return False
        return self.source is None or self._is_there(name, source)

    def _is_there(self, name: str, source: str | None) -> bool:
        return source is not None and _is_from(source, self.source or "")

    def shortened(self, place: str) -> str:
        """Return a ``file:line`` with as much of its path as ``source`` has."""
        file, line = _cut(place)
        parts = PurePath(file).parts[-len(PurePath(self._file).parts) :]
        return f"{'/'.join(parts)}:{line}"

    @property
    def _file(self) -> str:
        """The file in ``source``."""
        source = self.source or ""
        return source.rpartition(":")[0] if self.function is not None else _cut(source)[0]

    def distance(self, place: str) -> tuple[bool, int]:
        """Return how far ``file:line`` is from ``source``: whether in another file, and lines."""
        _, line = _cut(self.source or "")
        file_found, found_line = _cut(place)
        is_other = PurePath(file_found).name != PurePath(self._file).name
        return is_other, abs(int(line) - int(found_line or 0)) if line else 0


@dataclass(frozen=True, slots=True)
class _WhereNamed(Where):
    """The same, with the ``names`` of the operations in the function that ``source`` names."""

    names: frozenset[str] = frozenset()

    def _is_there(self, name: str, source: str | None) -> bool:
        return name in self.names


def is_named(module: str, pattern: str) -> bool:
    """Return whether a glob matches a module's name, with or without the build for TPUs."""
    return fnmatchcase(module, pattern) or fnmatchcase(without_build(module), pattern)


EVERYWHERE = Where()


def _is_called(name: str | None, pattern: str) -> bool:
    """Return whether a function has that name: ``step``, ``Model.step``, or a glob of either."""
    name = (name or "").replace(".<locals>", "")
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")


def _is_from(place: str, condition: str) -> bool:
    file, line = _cut(condition)
    file_found, found_line = _cut(place)
    parts = PurePath(file).parts
    return PurePath(file_found).parts[-len(parts) :] == parts and line in ("", found_line)


def _cut(place: str) -> tuple[str, str]:
    file, _, line = place.rpartition(":")
    return (file, line) if line.isdecimal() else (place, "")
