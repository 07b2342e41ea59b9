"""Numbers the places in the program that operations come from."""

from __future__ import annotations

from fusionscope.facts.module_analysis import Origin, PairOrigins
from fusionscope.facts.scopes import origin_of
from fusionscope.history.outcomes import Pair
from fusionscope.hlo import Instruction, SourceLocation


class Origins:
    """The origins, call stacks and frames so far, each once, in the order of their numbers."""

    def __init__(self) -> None:
        self.origins: dict[Origin, int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self.frames: dict[SourceLocation, int] = {}
        self._of: dict[Instruction, int] = {}
        self._stack_of: dict[Instruction, int] = {}

    def of(self, instruction: Instruction) -> int:
        """Return the number of the origin of an instruction."""
        number = self._of.get(instruction)
        if number is None:
            instruction_of_origin = origin_of(instruction)
            origin = Origin(instruction_of_origin.op_name, self._stack(instruction_of_origin))
            number = self.origins.setdefault(origin, len(self.origins))
            self._of[instruction] = number
        return number

    def of_pair(self, pair: Pair) -> PairOrigins:
        return PairOrigins(
            self._stack(pair.producer), self._stack(pair.consumer), self.of(pair.producer)
        )

    def _stack(self, instruction: Instruction) -> int:
        number = self._stack_of.get(instruction)
        if number is None:
            frames = tuple(
                self.frames.setdefault(frame, len(self.frames)) for frame in instruction.stack
            )
            number = self.stacks.setdefault(frames, len(self.stacks))
            self._stack_of[instruction] = number
        return number
