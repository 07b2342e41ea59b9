"""What is checked: the modules of dumps, each with what it was before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fusionscope.check.where import is_named
from fusionscope.facts.result import Explanation, ModuleFacts

if TYPE_CHECKING:
    from fusionscope.check.record import ModuleRecord
    from fusionscope.hlo import Module, SourceLocation


@dataclass(frozen=True, slots=True)
class Cell:
    """An explained dump. In a matrix, it is that of ``program`` compiled for ``target``; both are
    empty for any other dump. ``seconds`` is the time to compile and explain it.
    """

    explanation: Explanation
    program: str = ""
    target: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        """Return its name in a report."""
        if self.program:
            return f"{self.program} on {self.target}"
        return self.explanation.path

    def only(self, pattern: str) -> Cell:
        """Return it with the modules whose names a glob selects."""
        modules = tuple(m for m in self.explanation.modules if is_named(m.name, pattern))
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
        return str(self.cell) if self.cell.program else self.facts.name

    @cached_property
    def final(self) -> Module:
        """The final module. Raises ``UnusableInput``."""
        return self._read("final")

    @cached_property
    def stacks(self) -> dict[str, tuple[SourceLocation, ...]]:
        """The call stacks of operations before fusion, and of the final module, by their names.
        Raises ``UnusableInput``.
        """
        stages = ("final",) if self.facts.stages.pre_fusion is None else ("pre-fusion", "final")
        return {
            instruction.name: instruction.stack
            for stage in stages
            for computation in self._read(stage).computations
            for instruction in computation.instructions
        }

    def _read(self, stage: str) -> Module:
        from fusionscope.dump import open_dump

        module = next(
            module
            for module in open_dump(Path(self.cell.explanation.path)).modules
            if (module.number, module.name) == (self.facts.number, self.facts.name)
        )
        return module.read(module.stage(stage))
