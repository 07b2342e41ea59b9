"""Reasons by rules that were found by experiment, for compilers whose code is closed."""

from __future__ import annotations

from fusionscope.dump import DumpedModule
from fusionscope.dump.tpu_target import TpuTarget
from fusionscope.history.outcomes import Pair
from fusionscope.passes.rule import Number
from fusionscope.passes.tpu.accuracy import accuracy_of
from fusionscope.passes.tpu.pair import TpuPairs
from fusionscope.passes.tpu.rules import refusing
from fusionscope.reasons.causes import CONSUMER, PRODUCER
from fusionscope.reasons.evidence import Reason


class InferredReasons:
    """The reasons for pairs of a TPU's program. ``device`` is its generation, None if unknown: the
    figures are then those of all.
    """

    def __init__(self, device: str | None) -> None:
        self._device = device
        self._pairs = TpuPairs()

    def find(self, pair: Pair) -> Reason | None:
        """Return the reason of a refused pair, None if no rule applies that is right often enough.

        Its numbers say how many such pairs of other programs were refused, and of a cause what
        operation it is about.
        """
        rule = refusing(self._pairs.of(pair))
        accuracy = accuracy_of(rule.id, self._device) if rule is not None else None
        if rule is None or accuracy is None or not accuracy.is_enough:
            return None
        numbers: list[tuple[str, Number]] = [("refused", f"{accuracy} such pairs")]
        if isinstance(rule, type):
            ends = {CONSUMER: pair.consumer.opcode, PRODUCER: pair.producer.opcode}
            numbers += [item for item in ends.items() if item[1] in rule.opcodes][:1]
        return Reason(rule.id, "", tuple(numbers))


def infers(module: DumpedModule, tpu: TpuTarget | None) -> InferredReasons | None:
    """Return what infers reasons for ``module``, compiled for ``tpu``; None if nothing does."""
    if module.backend != "tpu" or module.pre_fusion is None:
        return None
    return InferredReasons(tpu.name if tpu is not None else None)
