"""Numbers for instructions that are alike in everything that decides what a kernel costs.

A model repeats its layers, and so the same pairs of producer and consumer. What is computed of one
is looked up for all that are alike.
"""

from __future__ import annotations

from collections.abc import Hashable

from fusionscope.gpu.identity import NO_DIFFERENCE
from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.grouping import Numbers


class Structures:
    """Equal numbers mean that two instructions do the same, called computations included: with the
    same order of instructions and of users, for operands of the same shapes, of which the same are
    equal. The operands of an instruction that is not a fusion have the same opcodes too: whether
    one is a constant matters.

    The contents of a fusion have the number of before until ``forget``. ``numbers`` are those of
    other graphs, if any, to have the same ones.
    """

    def __init__(self, numbers: Numbers | None = None) -> None:
        self._numbers = Numbers() if numbers is None else numbers
        self._operations: dict[MutableInstruction, int] = {}
        self._known: dict[MutableInstruction, int] = {}
        self._attributes: dict[str, Hashable] = {}  # by their text

    def of(self, instruction: MutableInstruction, *details: Hashable) -> int:
        """Return the number of an instruction. ``details`` is what else tells it from others."""
        number = self._known.get(instruction)
        if number is None:
            operands = instruction.operands
            if instruction.opcode == "fusion":
                bodies = tuple(self._body(computation) for computation in instruction.called)
                content: Hashable = (self._text(instruction), bodies)
            else:
                content = (
                    self._operation(instruction),
                    tuple(operand.opcode for operand in operands),
                )
            shapes = tuple([operand.shape for operand in operands])
            first: dict[MutableInstruction, int] = {}
            slots = tuple(
                [first.setdefault(operand, slot) for slot, operand in enumerate(operands)]
            )
            number = self._known[instruction] = self._numbers[content, shapes, slots, details]
        return number

    def of_pair(
        self, producer: MutableInstruction, consumer: MutableInstruction, *numbers: int
    ) -> Hashable:
        """Return a key of a producer and its consumer of these ``numbers``, with which of their
        operands are the same.
        """
        places = Numbers()
        ends = (producer, *producer.operands, *consumer.operands)
        return numbers, tuple([places[operand] for operand in ends])

    def forget(self, instruction: MutableInstruction) -> None:
        """Discard the number of ``instruction``, which has changed."""
        self._known.pop(instruction, None)

    def forget_inside(self, fusion: MutableInstruction) -> None:
        """Discard the numbers of the contents of ``fusion``, which is removed."""
        for inner in fusion.fused.instructions:
            self._operations.pop(inner, None)

    def _operation(self, instruction: MutableInstruction) -> int:
        """Return the number of what an instruction does, apart from its operands."""
        number = self._operations.get(instruction)
        if number is None or instruction.opcode in ("fusion", "parameter"):
            bodies = tuple(self._body(computation) for computation in instruction.called)
            number = self._numbers[self._text(instruction), bodies]
            self._operations[instruction] = number
        return number

    def _text(self, instruction: MutableInstruction) -> Hashable:
        text = instruction.attributes_text
        attributes = self._attributes.get(text)
        if attributes is None:
            items = instruction.attributes.items()
            attributes = tuple([item for item in items if item[0] not in NO_DIFFERENCE])
            self._attributes[text] = attributes
        return (
            instruction.opcode,
            instruction.shape,
            instruction.inside,
            instruction.fusion_kind,
            instruction.backend_kind,
            attributes,
        )

    def _body(self, computation: MutableComputation) -> int:
        """Return the number of the contents of a computation."""
        places = {instruction: place for place, instruction in enumerate(computation.instructions)}
        place_of = places.__getitem__
        lines = [
            (
                self._operation(instruction),
                tuple(map(place_of, instruction.operands)),
                tuple(map(place_of, instruction.users)),
            )
            for instruction in computation.instructions
        ]
        return self._numbers[places[computation.root], tuple(lines)]
