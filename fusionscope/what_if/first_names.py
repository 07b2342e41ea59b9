"""The names before fusion, by which users know instructions, in a later stage.

Passes between the stage before fusion and the first pass of a replay may rename everything.
"""

from __future__ import annotations

from functools import cached_property

from fusionscope.dump import DumpedModule, Stage
from fusionscope.graph.comparison import compare
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.outcomes import Pair, find_pairs, names_by_value
from fusionscope.history.values import NumberedModule, Numbering
from fusionscope.hlo import Module


class FirstNames:
    """The names of ``module`` before fusion, in the later stage ``start``. ``before`` is the stage
    before fusion, whose pairs ``explain`` lists.
    """

    def __init__(self, module: DumpedModule, start: Stage) -> None:
        self._module = module
        self._start = start
        self.before = module.pre_fusion or start

    def set_origins(self, graph: MutableModule) -> None:
        """Give the instructions of ``graph``, which is the later stage, their names before
        fusion as origins.
        """
        if self.before is self._start:
            return
        names = {later: name for name, later in self.later.items()}
        values = names_by_value(self.numbered_before)
        for execution in self._started[1].executions:
            for block in execution.blocks:  # inside of kernels
                for instruction, value in zip(
                    block.computation.instructions, block.values, strict=True
                ):
                    if value in values:
                        names.setdefault(instruction.name, values[value])
        for copy in graph.walk():
            copy.origin = names.get(copy.name, "")

    @cached_property
    def later(self) -> dict[str, str]:
        """The names in the later stage, by those before fusion."""
        before, start = (self._module.read(stage) for stage in (self.before, self._start))
        if before.bodies == start.bodies:
            return {instruction.name: instruction.name for instruction in before.walk()}
        compared = compare(start, before)
        by_content = compared.find_names()
        if compared.find_divergence() is None:
            return by_content
        values = names_by_value(self._started[1])
        first = names_by_value(self.numbered_before)
        opcodes = {instruction.name: instruction.opcode for instruction in start.walk()}
        same = {
            instruction.name: instruction.name
            for instruction in before.walk()
            if opcodes.get(instruction.name) == instruction.opcode
        }
        by_value = {name: values[value] for value, name in first.items() if value in values}
        return {**same, **by_content, **by_value}

    def pairs_in(self, *modules: tuple[str, Module]) -> tuple[Pair, ...]:
        """Return each pair before fusion with its outcome in the last of ``modules``, which follow
        the later stage, with their labels.
        """
        numbering = self._started[0].fork()
        numbered = [(label, numbering.number(module)) for label, module in modules]
        return find_pairs(self.numbered_before, numbered)

    @cached_property
    def _numbering(self) -> Numbering:
        return Numbering()

    @cached_property
    def numbered_before(self) -> NumberedModule:
        return self._numbering.number(self._module.read(self.before))

    @cached_property
    def _started(self) -> tuple[Numbering, NumberedModule]:
        """The numbering up to the later stage, and that stage. The stages from the one before
        fusion to it are numbered, which gives values that passes rewrote between the two the
        numbers that they had.
        """
        last = self.numbered_before
        stages = self._module.stages
        first, end = stages.index(self.before), stages.index(self._start)
        for stage in map(self._module.read, stages[first + 1 : end + 1]):
            if stage.bodies != last.module.bodies:
                last = self._numbering.number(stage)
        return self._numbering, last
