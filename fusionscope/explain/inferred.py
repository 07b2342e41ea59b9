"""Reasons by rules that were found by experiment, for compilers whose code is closed."""

from __future__ import annotations

from fusionscope.dump import DumpedModule
from fusionscope.explain.evidence import Reason
from fusionscope.history.outcomes import Pair, is_looked_through
from fusionscope.hlo import Instruction
from fusionscope.passes.tpu.accuracy import accuracy_of
from fusionscope.passes.tpu.pair import TpuPair
from fusionscope.passes.tpu.rules import refusing


class InferredReasons:
    """The reasons for pairs of a TPU's program. ``device`` is its generation, None if unknown: the
    figures are then those of all.
    """

    def __init__(self, device: str | None) -> None:
        self._device = device
        self._slots: dict[Instruction, dict[Instruction, tuple[int, ...]]] = {}

    def find(self, pair: Pair) -> Reason | None:
        """Return the reason of a refused pair, None if no rule applies."""
        rule = refusing(self._seen(pair))
        if rule is None:
            return None
        counted = accuracy_of(rule.id, self._device)
        if counted is None or not counted.is_enough:
            return None
        return Reason(rule.id, "", (("right", str(counted)),))

    def refuses(self, pair: Pair) -> str | None:
        """Return the rule by which a pair cannot be fused, None if there is none."""
        rule = refusing(self._seen(pair))
        return rule.id if rule is not None else None

    def _seen(self, pair: Pair) -> TpuPair:
        known = self._slots.get(pair.producer)
        if known is None:
            known = self._slots[pair.producer] = _readers(pair.producer)
        return TpuPair(pair.producer, pair.consumer, known.get(pair.consumer, ()))


def infers(module: DumpedModule) -> InferredReasons | None:
    """Return what infers reasons for ``module``, None if nothing does.

    Raises ``UnusableInput`` if the file about its target cannot be read.
    """
    if module.backend != "tpu" or module.pre_fusion is None:
        return None
    return InferredReasons(module.tpu.name if module.tpu is not None else None)


def _readers(producer: Instruction) -> dict[Instruction, tuple[int, ...]]:
    """Return the operands of each reader that are the value of ``producer``, or views of it."""
    values = {producer}
    pending = [producer]
    found: dict[Instruction, tuple[int, ...]] = {}
    while pending:
        for user in pending.pop().users:
            if not is_looked_through(user):
                found[user] = ()
            elif user not in values:
                values.add(user)
                pending.append(user)
    return {
        reader: tuple(slot for slot, operand in enumerate(reader.operands) if operand in values)
        for reader in found
    }
