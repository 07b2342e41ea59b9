"""Counts how often the code of each instruction in a fusion is emitted.

An instruction whose users index it in different ways is emitted once for each of them.

Source: xla/service/fusion_node_indexing_evaluation.cc.
"""

from __future__ import annotations

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import same_but_for_type

# Their code ends a basic block, so that earlier values are not available after it. Source:
# xla/service/elemental_ir_emitter.cc, OpInvalidatesCache.
EMITTED_ANEW = frozenset(
    """concatenate dot dynamic-update-slice pad reduce reduce-window""".split()
)


class IndexingEvaluation:
    """The counts for ``fusion``, updated while instructions are fused into it.

    Every instruction has a set of instructions that compute indices for it. It is emitted as often
    as these together.
    """

    def __init__(self, fusion: MutableInstruction) -> None:
        self._fusion = fusion
        self._indexed_by: dict[MutableInstruction, dict[MutableInstruction, None]] = {
            fusion.fused.root: {fusion: None}
        }
        self._count: dict[MutableInstruction, int] = {fusion: 1}
        for instruction in reversed(fusion.fused.post_order()):
            if instruction.opcode != "parameter":
                self._add(instruction)

    def emitted(self, producer: MutableInstruction) -> int:
        """Return how often an operand of the fusion would be emitted inside it."""
        return sum(self._count[user] for user in self._indexed_by.get(producer, ()))

    def fused(self, producer: MutableInstruction, clone: MutableInstruction) -> None:
        """Record that ``producer``, an operand until now, is in the fusion as ``clone``."""
        self._indexed_by[clone] = self._indexed_by.pop(producer, {})
        self._add(clone)

    def _add(self, instruction: MutableInstruction) -> None:
        indexed_by = self._indexed_by.setdefault(instruction, {})
        self._count[instruction] = sum(self._count[user] for user in indexed_by)
        for operand in instruction.operands:
            target = operand
            if operand.opcode == "parameter":
                target = self._fusion.operands[operand.parameter_number]
            users = self._indexed_by.setdefault(target, {})
            if instruction.opcode == "transpose" or same_but_for_type(
                operand.shape, instruction.shape
            ):
                users.update(indexed_by)
            else:
                users[instruction] = None


def emitted_too_often(producer: MutableInstruction, emitted: int, limit: int) -> dict[str, int]:
    """Return the numbers that exceed a limit, empty if none does. ``emitted`` is how often
    ``producer`` would be emitted inside one fusion.

    Source: CodeDuplicationTooHigh.
    """
    if emitted > limit:
        return {"emitted": emitted, "limit": limit}
    if producer.opcode in EMITTED_ANEW:
        users = user_count(producer)
        if emitted > 1 or users > 1:
            return {"emitted": emitted, "users": users, "limit": 1}
    return {}


def user_count(instruction: MutableInstruction) -> int:
    """Return the number of users. Instead of a fusion, its inner users count.

    Source: UserCount.
    """
    count = 0
    for user in instruction.users:
        if user.opcode == "fusion":
            parameter = user.fused.parameters[user.operands.index(instruction)]
            count += len(parameter.users)
        else:
            count += 1
    return count
