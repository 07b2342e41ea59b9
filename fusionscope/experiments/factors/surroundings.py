"""Factors around the pair: other users, and other operands."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.experiments.cut import Cut, replace_with_parameter
from fusionscope.experiments.factors.change import Change, added, an, listed
from fusionscope.graph.mutable import MutableInstruction, replace_operand
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.shape import Shape


class OtherUsers:
    """Other users of the producer: removed."""

    __slots__ = ()
    name = "other users"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        users = opened.other_users()
        if not users:
            return
        words = listed(users)
        for user in users:
            if user.parent is not None:
                for link in opened.chain():
                    if user in link.users:
                        replace_with_parameter(link, user)
        yield Change("what else reads the producer", words, "nothing", opened.close())


class ProducerAsResult:
    """A producer that is a result of the module: no longer one."""

    __slots__ = ()
    name = "producer is a result"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        remaining = [result for result in opened.results if result not in opened.chain()]
        if len(remaining) < len(opened.results) and remaining:
            opened.set_results(remaining)
            yield Change("the producer", "a result of the program", "not a result", opened.close())


class ReadOnce:
    """A value that is several operands of the consumer: one operand only."""

    __slots__ = ()
    name = "reads of the consumer"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        last = opened.chain()[-1]
        slots = [place for place, operand in enumerate(opened.consumer.operands) if operand is last]
        if len(slots) < 2:
            return
        entry, consumer = opened.entry, opened.consumer
        for slot in slots[1:]:
            parameter = entry.make_parameter(last.shape)
            consumer.operands[slot] = parameter
            last.users.drop(consumer)
            parameter.users.add(consumer)
        yield Change("operands that are the value", str(len(slots)), "1", opened.close())


class ProducerReadsOne:
    """The operands of an elementwise producer: one array, and scalars for the others."""

    __slots__ = ()
    name = "reads of the producer"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        producer, entry = opened.producer, opened.entry
        arrays = [
            operand for operand in dict.fromkeys(producer.operands) if operand.opcode != "broadcast"
        ]
        if len(arrays) < 2 or not producer.shape.rank or not is_elementwise(producer):
            return
        for array in arrays[1:]:
            scalar = entry.make_parameter(Shape(array.shape.element_type))
            wide = entry.make("broadcast", array.shape, [scalar], ", dimensions={}")
            replace_operand(producer, array, wide)
        yield Change("arrays that the producer reads", str(len(arrays)), "1", opened.close())


class OtherOperands:
    """Other operands of the consumer that are computed: parameters instead."""

    __slots__ = ()
    name = "other operands"

    def changes(self, cut: Cut) -> Iterator[Change]:
        for whose in ("consumer", "producer"):
            opened = cut.edit()
            instruction: MutableInstruction = getattr(opened, whose)
            path = set(opened.chain())
            other_operands = [
                operand
                for operand in dict.fromkeys(instruction.operands)
                if operand not in path and operand.opcode not in ("parameter", "constant")
            ]
            if other_operands:
                for other_operand in other_operands:
                    replace_with_parameter(other_operand, instruction)
                before = f"computed by {listed(other_operands)}"
                yield Change(f"operands of the {whose}", before, "parameters", opened.close())


class Surroundings:
    """Operations near the pair: one of them removed."""

    __slots__ = ()
    name = "neighbours"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        remaining = [result for result in opened.results if result is opened.consumer]
        if not remaining:
            return
        opened.set_results(remaining)
        smaller = opened.close()
        removed = len(cut.module.entry.instructions) - len(smaller.module.entry.instructions)
        if removed > 1:
            yield Change("operations around the pair", f"{removed} more", "none", smaller)


class Users:
    """Users of the consumer: removed."""

    __slots__ = ()
    name = "users of the consumer"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        users = [user for user in opened.consumer.users if user is not opened.entry.root]
        if not users:
            return
        words = listed(users)
        for user in users:
            replace_with_parameter(opened.consumer, user)
        opened.set_results([*opened.results, opened.consumer])
        yield Change("what reads the consumer", words, "the program's end", opened.close())


class ConsumerFused:
    """A consumer alone in its kernel: fused with an elementwise operation."""

    __slots__ = ()
    name = "consumer is a single operation"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        consumer = opened.consumer
        if not consumer.shape.is_array or any(
            user is not opened.entry.root for user in consumer.users
        ):
            return
        end = added(consumer)
        results = [end if result is consumer else result for result in opened.results]
        opened.set_results(results)
        yield Change(
            "the consumer",
            "a single operation",
            f"an operation and {an(end.opcode)}",
            opened.close(),
        )
