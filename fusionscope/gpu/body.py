"""The instructions that one kernel would compute: those of one fusion, or of two fused
as one.

Source: xla/hlo/utils/hlo_traversal.cc, HloFusionAdaptor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.hlo.search import unfold


class FusionBody:
    """One instruction, or a producer and its consumer as if they were already fused. A kernel that
    ``writes_producer`` has both results.

    Parameters of fusions are transparent: the ``operands`` of an instruction inside are the
    instructions that it ultimately reads, inside or outside of the body.
    """

    __slots__ = ("_fusions", "_single", "parts", "writes_producer")

    def __init__(self, *parts: MutableInstruction, writes_producer: bool = False) -> None:
        self.parts = parts
        self.writes_producer = writes_producer
        self._fusions: dict[MutableComputation, MutableInstruction] = {
            part.fused: part for part in parts if part.opcode == "fusion"
        }
        self._single = {part for part in parts if part.opcode != "fusion"}

    def __contains__(self, instruction: MutableInstruction) -> bool:
        return instruction in self._single or instruction.parent in self._fusions

    def holds(self, *opcodes: str) -> bool:
        """Return whether the body has an instruction of one of ``opcodes``."""
        return any(part.holds(*opcodes) for part in self.parts)

    def instructions(self) -> Iterator[MutableInstruction]:
        """Yield all instructions that compute something, in no particular order.

        Source: HloFusionAdaptor::ForEach.
        """
        for part in self.parts:
            if part.opcode == "fusion":
                for inner in part.fused.instructions:
                    if inner.opcode not in ("parameter", "tuple", "get-tuple-element"):
                        yield inner
            else:
                yield part

    @property
    def roots(self) -> list[MutableInstruction]:
        """Return the instructions that the kernel writes. Source: HloFusionAdaptor::GetRoots."""
        consumer = self.parts[-1]
        roots = part_roots(consumer)
        if len(self.parts) == 1:
            return roots
        producer = self.parts[0]
        for index, root in enumerate(roots):
            if root.opcode == "parameter":
                operand, element = consumer.operands[root.parameter_number], 0
                if operand.opcode == "get-tuple-element":
                    element = int(operand.attributes["index"])
                    operand = operand.operands[0]
                if operand is producer:
                    roots[index] = part_roots(producer)[element]
        return [*roots, *part_roots(producer)] if self.writes_producer else roots

    def parameters(self) -> list[MutableInstruction]:
        """Return the instructions that the kernel reads: operands of the consumer, then those that
        only the producer reads.

        Source: HloFusionAdaptor::GetParameters.
        """
        consumer = self.parts[-1]
        if len(self.parts) == 1:
            return list(consumer.operands)
        producer = self.parts[0]
        from_producer = set(elements_of(producer))
        operands = [operand for operand in consumer.operands if operand not in from_producer]
        return operands + added_parameters(producer, consumer)

    def operands(self, instruction: MutableInstruction) -> list[MutableInstruction]:
        """Source: HloInstructionAdaptor::GetOperands."""
        if instruction.opcode == "parameter":
            return [self.resolve(instruction)]
        return [self.resolve(operand) for operand in instruction.operands]

    def resolve(self, operand: MutableInstruction) -> MutableInstruction:
        """Return the instruction, inside or outside, that an operand is. Source: ResolveOperand."""
        while True:
            if operand.opcode == "get-tuple-element" and operand.operands[0].opcode == "fusion":
                root = operand.operands[0].fused.root
                if root.opcode == "tuple" and root in self:
                    return root.operands[int(operand.attributes["index"])]
            if operand not in self:
                if operand.opcode == "fusion" and operand.fused in self._fusions:
                    return operand.fused.root
                return operand
            if operand.opcode != "parameter":
                return operand
            operand = self._fusions[operand.computation].operands[operand.parameter_number]

    def users(self, instruction: MutableInstruction) -> list[MutableInstruction]:
        """Return the users in the body of an instruction inside.

        For one of several outputs of the producer, these are the users of all outputs, as in the
        compiler. Source: HloInstructionAdaptor::GetUsers, ResolveUsers.
        """
        users: list[MutableInstruction] = []
        readers: list[tuple[MutableInstruction, MutableInstruction]] = []
        fusion = self._fusions.get(instruction.computation)
        if fusion is not None and instruction.is_root:
            readers = [(user, fusion) for user in fusion.users]
        readers += [(user, instruction) for user in instruction.users]
        while readers:
            user, read = readers.pop(0)
            outside = self._fusions.get(user.computation)
            if user.opcode == "tuple" and user.is_root and outside is not None:
                readers = [
                    (reader, element)
                    for element in outside.users
                    if element.opcode == "get-tuple-element"
                    for reader in element.users
                ] + readers
            elif user in self:
                users.append(user)
            elif user.opcode == "fusion" and user.fused in self._fusions:
                users += user.fused.parameters[user.operands.index(read)].users
        return users

    def search(
        self,
        starts: Iterable[MutableInstruction],
        visit: Callable[[MutableInstruction], bool | None],
        *,
        up: bool = True,
    ) -> None:
        """Search breadth first from ``starts``, towards operands if ``up``, else towards users
        inside.

        ``visit`` returns whether to continue from an instruction; None ends the search. Source:
        HloBfsTraversal.
        """
        queue = deque(dict.fromkeys(starts))
        visited = set(queue)
        while queue:
            current = queue.popleft()
            advance = visit(current)
            if advance is None:
                return
            if advance:
                for near in self.operands(current) if up else self.users(current):
                    if near not in visited and near in self:
                        visited.add(near)
                        queue.append(near)


def part_roots(part: MutableInstruction) -> list[MutableInstruction]:
    """Return the outputs of an instruction; for a fusion, through nested tuples."""
    if part.opcode != "fusion":
        return [part]
    roots = unfold(
        [part.fused.root], lambda value: value.operands if value.opcode == "tuple" else ()
    )
    return [root for root in roots if root.opcode != "tuple"]


def elements_of(producer: MutableInstruction) -> list[MutableInstruction]:
    """Return what consumers of ``producer`` read: itself and, if it is a tuple, its elements."""
    if not producer.shape.is_tuple:
        return [producer]
    return [producer, *(user for user in producer.users if user.opcode == "get-tuple-element")]


def added_parameters(
    producer: MutableInstruction, consumer: MutableInstruction
) -> list[MutableInstruction]:
    """Return the operands of ``producer`` that the consumer neither reads yet nor passes on."""
    skipped = {
        producer.operands[root.parameter_number]
        for root in part_roots(producer)
        if root.opcode == "parameter" and len(root.users) <= 1
    }
    return [
        operand
        for operand in dict.fromkeys(producer.operands)
        if operand not in skipped and consumer not in operand.users
    ]
