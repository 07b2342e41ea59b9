"""Finds sets of instructions that do the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from fusionscope.graph.comparison import meaning
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, MutableModule
from fusionscope.grouping import Numbers

_CONSTANTS = frozenset({"constant", "iota"})


class Structures:
    """Numbers of sets of instructions of ``graph``, equal for sets that do the same with values of
    the same shapes. The order of instructions, names and metadata do not count.

    A label of each instruction says what it does, then also what it reads and what reads it, until
    no more of them differ (the refinement of Weisfeiler and Leman).
    """

    def __init__(self, graph: MutableModule) -> None:
        self._numbers = Numbers()
        self._bodies: dict[MutableComputation, int] = {}
        for computation in graph.post_order():
            if computation is not graph.entry:
                self._bodies[computation] = self.of(computation.instructions)

    def of(self, members: Collection[MutableInstruction]) -> int:
        """Return the number of ``members``, which are in one computation."""
        inside = set(members)
        labels = {instruction: self._label(instruction, inside) for instruction in inside}
        for instruction in members:
            for operand in instruction.operands:
                labels.setdefault(operand, self._label_outside(operand))
        count = 0
        while len(set(labels.values())) > count:
            count = len(set(labels.values()))
            labels = {
                instruction: self._numbers[
                    label,
                    tuple(labels[operand] for operand in instruction.operands)
                    if instruction in inside
                    else (),
                    tuple(sorted(_uses(instruction, labels, inside))),
                ]
                for instruction, label in labels.items()
            }
        return self._numbers["set", *sorted(labels.values())]

    def _label(
        self, instruction: MutableInstruction, inside: Collection[MutableInstruction] = ()
    ) -> int:
        return self._numbers[
            instruction.opcode,
            str(instruction.shape),
            "".join(instruction.inside.split()),
            (instruction.fusion_kind, instruction.backend_kind),
            tuple(self._bodies[body] for body in instruction.called),
            tuple(sorted(meaning(instruction).items())),
            instruction.is_root or any(user not in inside for user in instruction.users),
        ]

    def _label_outside(self, operand: MutableInstruction) -> int:
        """Return a label of what it is, if it is a constant or a broadcast of one, or its shape."""
        labels = []
        source = operand
        while source.opcode == "broadcast":
            labels.append(self._label(source))
            source = source.operands[0]
        if source.opcode not in _CONSTANTS:
            return self._numbers["outside", str(operand.shape)]
        return self._numbers["constant", *labels, self._label(source)]


def _uses(
    instruction: MutableInstruction,
    labels: Mapping[MutableInstruction, int],
    inside: Collection[MutableInstruction],
) -> Iterator[tuple[int, int]]:
    """Yield the labels of what reads ``instruction`` inside, and as which operand."""
    for user in instruction.users:
        if user in inside:
            for slot, operand in enumerate(user.operands):
                if operand is instruction:
                    yield labels[user], slot
