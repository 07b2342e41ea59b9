"""Factors outside of what is computed: barriers, buffers, and flags of the compiler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fusionscope.experiments.cut import Cut
from fusionscope.experiments.factors.change import Change
from fusionscope.graph.mutable import MutableInstruction, replace_operand

EMPTY = "empty"  # a flag without a value
_BARRIER = "opt-barrier"


class Barriers:
    """A barrier between producer and consumer: removed. Or one between the consumer and its users:
    added.
    """

    __slots__ = ()
    name = "barrier"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        path = opened.path()
        if any(step.opcode == _BARRIER for step in path):
            replace_operand(opened.consumer, path[-1], _before_barriers(path[-1]))
            yield Change("a barrier between the two", "there", "removed", opened.close())
        opened = cut.edit()
        consumer = opened.consumer
        users = [user for user in consumer.users if user is not opened.entry.root]
        if users and consumer.shape.is_array:
            barrier = opened.entry.make(_BARRIER, consumer.shape, [consumer])
            for user in users:
                replace_operand(user, consumer, barrier)
            yield Change("a barrier behind the consumer", "missing", "added", opened.close())


def _before_barriers(value: MutableInstruction) -> MutableInstruction:
    """Return the value that a barrier, or a part of one, passes on."""
    while True:
        match value.opcode, [operand.opcode for operand in value.operands]:
            case "opt-barrier", _ if value.shape.is_array:
                value = value.operands[0]
            case "get-tuple-element", ["opt-barrier"]:
                (source,) = value.operands[0].operands
                if source.opcode != "tuple":
                    return value
                value = source.operands[value.attribute("index")]
            case _:
                return value


class Donation:
    """The buffer of the result: that of a parameter that the pair reads, instead of its own."""

    __slots__ = ()
    name = "donated buffer"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        read = dict.fromkeys((*opened.consumer.operands, *opened.producer.operands))
        candidates = [
            (place, parameter)
            for place, result in enumerate(opened.results)
            if result in (opened.consumer, opened.producer)
            for parameter in read
            if parameter.opcode == "parameter" and parameter.shape == result.shape
        ]
        if candidates:
            donated = opened.close()
            place, parameter = candidates[0]
            alias = f"{{ {{{place}}}: ({parameter.inside}, {{}}, may-alias) }}"
            module = replace(donated.module, header=f", input_output_alias={alias}")
            yield Change("the buffer", "its own", "donated", replace(donated, module=module))


class Setting(NamedTuple):
    """A flag of the compiler with its value, and another one to try."""

    flag: str
    value: str
    other: str


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of the compiler, ``settings``: another value of one of them."""

    settings: Sequence[Setting]
    name = "flag"

    def changes(self, cut: Cut) -> Iterator[Change]:
        for setting in self.settings:
            changed = replace(cut, flags=((setting.flag, setting.other),))
            yield Change(setting.flag, setting.value or EMPTY, setting.other or EMPTY, changed)
