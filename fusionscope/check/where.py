"""Which modules, and which parts of them, an expectation is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import PurePath

from fusionscope.explain.result import KernelFacts, ModuleFacts, Operation, PairFacts


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
        given = ((field.name, getattr(self, field.name)) for field in fields(Where))
        return ", ".join(f"{name} {value}" for name, value in given if value is not None)

    def has_module(self, facts: ModuleFacts, program: str = "", target: str = "") -> bool:
        known = f"{facts.backend} {facts.device}".lower()
        return (
            (self.module is None or fnmatchcase(facts.name, self.module))
            and (self.device is None or self.device.lower() in known)
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
        file, _, rest = (self.source or "").rpartition(":")
        return rest if file and rest and not rest.isdecimal() and "/" not in rest else None

    def within(self, functions: Mapping[str, Iterable[str]]) -> Where:
        """Return this, with a function replaced by its lines. ``functions`` are those of each
        ``file:line`` of a module.
        """
        if self.function is None or self.source is None:
            return self
        file = self.source.rpartition(":")[0]
        lines = frozenset(
            line
            for line, names in functions.items()
            if _is_from(line, file) and any(_is_called(name, self.function) for name in names)
        )
        return _WhereLines(**{f.name: getattr(self, f.name) for f in fields(Where)}, lines=lines)

    def without_place(self) -> Where:
        """Return a selection of the same modules, and all of their parts."""
        return replace(self, computation=None, op_name=None, source=None)

    def has_pair(self, pair: PairFacts) -> bool:
        return self.has_computation(pair.computation) and any(
            self._has(end.op_name, end.source) for end in (pair.producer, pair.consumer)
        )

    def has_kernel(self, kernel: KernelFacts) -> bool:
        return self.has_computation(kernel.computation) and self._has(kernel.op_name, kernel.source)

    def has_operation(self, operation: Operation) -> bool:
        """Return whether an operation matches, as far as its source is known."""
        return self._has(operation.op_name, operation.source)

    def has_computation(self, name: str) -> bool:
        return self.computation is None or fnmatchcase(name, self.computation)

    def has_source(self, place: str) -> bool:
        """Return whether ``place``, a ``file:line``, matches ``source``, which is given."""
        return _is_from(place, self.source or "")

    def _has(self, op_name: str | None, source: str | None) -> bool:
        if self.op_name is not None and not fnmatchcase(op_name or "", self.op_name):
            return False
        return self.source is None or (source is not None and self.has_source(source))

    def distance(self, place: str) -> tuple[bool, int]:
        """Return how far a ``file:line`` is from ``source``: whether the file is another one, and
        the number of lines between them.
        """
        file, line = _cut(self.source or "")
        found, found_line = _cut(place)
        is_other = PurePath(found).name != PurePath(file).name
        return is_other, abs(int(line) - int(found_line or 0)) if line else 0


@dataclass(frozen=True, slots=True)
class _WhereLines(Where):
    """The same, with the ``lines`` of the function that ``source`` names."""

    lines: frozenset[str] = frozenset()

    def has_source(self, place: str) -> bool:
        return place in self.lines


EVERYWHERE = Where()


EVERYWHERE = Where()


def _is_called(name: str, wanted: str) -> bool:
    """Return whether a function has that name: ``step``, ``Model.step``, or a glob of either."""
    name = name.replace(".<locals>", "")
    return fnmatchcase(name, wanted) or fnmatchcase(name, f"*.{wanted}")


def _is_from(place: str, wanted: str) -> bool:
    file, line = _cut(wanted)
    found, found_line = _cut(place)
    parts = PurePath(file).parts
    return PurePath(found).parts[-len(parts) :] == parts and line in ("", found_line)


def _cut(place: str) -> tuple[str, str]:
    file, _, line = place.rpartition(":")
    return (file, line) if line.isdecimal() else (place, "")
