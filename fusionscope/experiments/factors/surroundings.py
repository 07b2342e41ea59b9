"""Factors around the two: what else reads them, and what else they read."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.experiments.cut import Cut, replace_with_parameter
from fusionscope.experiments.factors.change import Change, added, an, listed
from fusionscope.graph.mutable import MutableInstruction, replace_operand
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.shape import Shape


class OtherUsers:
    """Other operations read the producer's value: without them."""

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
                for each in opened.chain():
                    if user in each.users:
                        replace_with_parameter(each, user)
        yield Change("what else reads the producer", words, "nothing", opened.close())


class ProducerAsResult:
    """The producer is a result of the module: it is none."""

    __slots__ = ()
    name = "producer is a result"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        kept = [each for each in opened.results if each not in opened.chain()]
        if len(kept) < len(opened.results) and kept:
            opened.set_results(kept)
            yield Change("the producer", "a result of the program", "not a result", opened.close())


class ReadOnce:
    """The consumer reads the value in several operands: in one only."""

    __slots__ = ()
    name = "reads of the consumer"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        last = opened.chain()[-1]
        slots = [place for place, each in enumerate(opened.consumer.operands) if each is last]
        if len(slots) < 2:
            return
        entry, consumer = opened.entry, opened.consumer
        for slot in slots[1:]:
            made = entry.make_parameter(last.shape)
            consumer.operands[slot] = made
            last.users.drop(consumer)
            made.users.add(consumer)
        yield Change("operands that are the value", str(len(slots)), "1", opened.close())


class ProducerReadsOne:
    """The producer is elementwise and reads several arrays: one, the others are scalars."""

    __slots__ = ()
    name = "reads of the producer"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        own, entry = opened.producer, opened.entry
        arrays = [each for each in dict.fromkeys(own.operands) if each.opcode != "broadcast"]
        if len(arrays) < 2 or not own.shape.rank or not is_elementwise(own):
            return
        for each in arrays[1:]:
            scalar = entry.make_parameter(Shape(each.shape.element_type))
            wide = entry.make("broadcast", each.shape, [scalar], ", dimensions={}")
            replace_operand(own, each, wide)
        yield Change("arrays that the producer reads", str(len(arrays)), "1", opened.close())


class OtherOperands:
    """What else the consumer reads is computed beside it: a parameter instead."""

    __slots__ = ()
    name = "other operands"

    def changes(self, cut: Cut) -> Iterator[Change]:
        for whose in ("consumer", "producer"):
            opened = cut.edit()
            own: MutableInstruction = getattr(opened, whose)
            path = set(opened.chain())
            others = [
                each
                for each in dict.fromkeys(own.operands)
                if each not in path and each.opcode not in ("parameter", "constant")
            ]
            if others:
                for each in others:
                    replace_with_parameter(each, own)
                before = f"computed by {listed(others)}"
                yield Change(f"operands of the {whose}", before, "parameters", opened.close())


class Surroundings:
    """Other operations are near: one of them is not."""

    __slots__ = ()
    name = "neighbours"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        kept = [each for each in opened.results if each is opened.consumer]
        if not kept:
            return
        opened.set_results(kept)
        made = opened.close()
        removed = len(cut.module.entry.instructions) - len(made.module.entry.instructions)
        if removed > 1:
            yield Change("operations around the pair", f"{removed} more", "none", made)


class Users:
    """Something else reads the consumer's result: nothing does."""

    __slots__ = ()
    name = "users of the consumer"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        users = [each for each in opened.consumer.users if each is not opened.entry.root]
        if not users:
            return
        words = listed(users)
        for user in users:
            replace_with_parameter(opened.consumer, user)
        opened.set_results([*opened.results, opened.consumer])
        yield Change("what reads the consumer", words, "the program's end", opened.close())


class ConsumerFused:
    """The consumer is alone: an elementwise operation is fused with it."""

    __slots__ = ()
    name = "consumer is a single operation"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        consumer = opened.consumer
        if not consumer.shape.is_array or any(
            each is not opened.entry.root for each in consumer.users
        ):
            return
        made = added(consumer)
        results = [made if each is consumer else each for each in opened.results]
        opened.set_results(results)
        yield Change(
            "the consumer",
            "a single operation",
            f"an operation and {an(made.opcode)}",
            opened.close(),
        )
