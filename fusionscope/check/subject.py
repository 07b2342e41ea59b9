"""What is checked: the modules of dumps, each with what it was before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fusionscope.explain.result import Explanation, ModuleFacts

if TYPE_CHECKING:
    from fusionscope.check.record import ModuleRecord
    from fusionscope.hlo import Module


@dataclass(frozen=True, slots=True)
class Cell:
    """An explained dump. In a matrix, it is that of ``program`` compiled for ``target``; both are
    empty for any other dump. ``seconds`` is the time to compile and explain it.
    """

    explanation: Explanation
    program: str = ""
    target: str = ""
    seconds: float = 0.0

    def only(self, pattern: str) -> Cell:
        """Return it with the modules whose names a glob selects."""
        modules = tuple(m for m in self.explanation.modules if fnmatchcase(m.name, pattern))
        return replace(self, explanation=replace(self.explanation, modules=modules))

    @property
    def subjects(self) -> list[Subject]:
        """Its modules in the order in which they were compiled."""
        modules = sorted(self.explanation.modules, key=lambda facts: facts.number)
        return [Subject(facts, self) for facts in modules]


@dataclass(frozen=True, eq=False)
class Subject:
    """A module of a dump. ``before`` is what it was, None if nothing is known of that."""

    facts: ModuleFacts
    cell: Cell
    before: ModuleRecord | None = None

    def __str__(self) -> str:
        """Return its name in a report."""
        if self.cell.program:
            return f"{self.cell.program} on {self.cell.target}"
        return self.facts.name

    @cached_property
    def final(self) -> Module:
        """The final module. Raises ``UnusableInput``."""
        from fusionscope.dump import open_dump

        module = next(
            each
            for each in open_dump(Path(self.cell.explanation.path)).modules
            if (each.number, each.name) == (self.facts.number, self.facts.name)
        )
        return module.read(module.stage("final"))

    @cached_property
    def functions(self) -> Mapping[str, set[str]]:
        """The functions at each ``file:line`` of the user's program, by their qualified names.
        Raises ``UnusableInput``.
        """
        found: dict[str, set[str]] = defaultdict(set)
        for place in self.final.frames.locations() if self.final.frames is not None else ():
            if place.function:
                found[str(place)].add(place.function)
        return found
