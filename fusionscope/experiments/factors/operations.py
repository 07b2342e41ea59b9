"""Factors in the two: their operations, and how these work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fusionscope.experiments.cut import Cut, replace_with_parameter
from fusionscope.experiments.factors.change import (
    Change,
    added,
    an,
    concatenated,
    multiplied,
    take_place,
    with_producer,
)
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo.attributes import read_value
from fusionscope.hlo.inference import Operation, infer_shape
from fusionscope.hlo.shape import Shape

_EXPENSIVE = "exponential"


class Operands:
    """One of the two concatenates many arrays: two."""

    __slots__ = ()
    name = "number of operands"

    def changes(self, cut: Cut) -> Iterator[Change]:
        for whose in ("consumer", "producer"):
            opened = cut.edit()
            own: MutableInstruction = getattr(opened, whose)
            if own.opcode != "concatenate" or len(own.operands) < 3:
                continue
            (dimension,) = own.attribute("dimensions")
            if whose == "producer":
                made = concatenated(opened.entry, own.shape, dimension, 2)
            else:
                made = self._shortened(own, own.operands.index(opened.chain()[-1]), dimension)
            take_place(opened, own, made)
            yield Change(f"operands of the {whose}", str(len(own.operands)), "2", opened.close())

    def _shortened(self, own: MutableInstruction, place: int, dimension: int) -> MutableInstruction:
        """Return a concatenate of the operand at ``place`` and another one."""
        kept = [own.operands[place], own.operands[0 if place else 1]]
        sizes = list(own.shape.dimensions)
        sizes[dimension] = sum(each.shape.dimensions[dimension] or 1 for each in kept)
        shape = replace(own.shape, dimensions=tuple(sizes))
        return own.computation.make(own.opcode, shape, kept, own.attributes_text)


class Dimension:
    """The consumer pads, concatenates or reduces along a dimension, or the producer concatenates
    along one: along another one.
    """

    __slots__ = ()
    name = "dimension"

    def changes(self, cut: Cut) -> Iterator[Change]:
        yield from self._of_consumer(cut)
        yield from self._of_producer(cut)

    def _of_producer(self, cut: Cut) -> Iterator[Change]:
        named = {each.name: each for each in cut.module.entry.instructions}
        producer = named[cut.producer]
        if producer.opcode != "concatenate":
            return
        (own,) = _dimensions_of(producer.opcode, producer.attributes, producer.shape.rank)
        count = len(producer.operands)
        for other in reversed(range(producer.shape.rank)):
            if other != own and (producer.shape.dimensions[other] or 0) >= count:
                opened = cut.edit()
                made = concatenated(opened.entry, producer.shape, other, count)
                what = "the dimension of the concatenate"
                yield Change(what, str(own), str(other), with_producer(opened, made))

    def _of_consumer(self, cut: Cut) -> Iterator[Change]:
        named = {each.name: each for each in cut.module.entry.instructions}
        consumer = named[cut.consumer]
        rank = consumer.operands[0].shape.rank
        own = _dimensions_of(consumer.opcode, consumer.attributes, rank)
        if len(own) != 1:
            return
        for other in reversed(range(rank)):
            if other not in own and (made := self._moved(cut, own[0], other)) is not None:
                what = f"the dimension of the {consumer.opcode}"
                yield Change(what, str(own[0]), str(other), made)

    def _moved(self, cut: Cut, own: int, other: int) -> Cut | None:
        opened = cut.edit()
        consumer, operands = opened.consumer, list(opened.consumer.operands)
        attributes = dict(consumer.attributes)
        if consumer.opcode == "concatenate":  # of arrays that are equal but for one dimension
            value = opened.chain()[-1]
            operands = [
                each if each is value else opened.entry.make_parameter(value.shape)
                for each in operands
            ]
        if consumer.opcode == "pad":
            parts = attributes["padding"].split("x")
            parts[own], parts[other] = parts[other], parts[own]
            attributes["padding"] = "x".join(parts)
        else:
            attributes["dimensions"] = f"{{{other}}}"
        shape = infer_shape(
            Operation(
                consumer.opcode,
                [each.shape for each in operands],
                [each.root.shape for each in consumer.called],
                attributes,
            )
        )
        if shape is None or not shape.is_array:
            return None
        text = "".join(f", {key}={value}" for key, value in attributes.items())
        made = opened.entry.make(consumer.opcode, shape, operands, text)
        made.called = list(consumer.called)
        take_place(opened, consumer, made)
        return opened.close()


def _dimensions_of(opcode: str, attributes: Mapping[str, str], rank: int) -> list[int]:
    """Return along which dimensions an operation pads, concatenates or reduces."""
    if opcode == "pad":
        parts = attributes["padding"].split("x")
        return [place for place, part in enumerate(parts) if part.strip("0_")]
    if opcode in ("concatenate", "reduce"):
        found = read_value("dimensions", attributes["dimensions"])
        return list(found) if isinstance(found, tuple) else []
    return []


class ScalarConstant:
    """The producer is a constant with several elements: a scalar that is broadcast."""

    __slots__ = ()
    name = "elements of a constant"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        constant = opened.producer
        if constant.opcode != "constant" or not constant.shape.rank:
            return
        scalar = Shape(constant.shape.element_type)
        literal = "false" if scalar.element_type == "pred" else "1"
        name = opened.graph.instruction_name("scalar")
        made = opened.entry.add(MutableInstruction(name, "constant", scalar, [], inside=literal))
        wide = opened.entry.make("broadcast", constant.shape, [made], ", dimensions={}")
        opened.entry.replace(constant, wide)
        opened.producer = made
        yield Change(
            "the constant", f"{constant.shape.element_count} elements", "1", opened.close()
        )


class CheapProducer:
    """The producer is an operation of some kind: a cheap elementwise one, of the same shape."""

    __slots__ = ()
    name = "producer's operation"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        own = opened.producer
        if own.shape.is_array:
            made = multiplied(opened.entry, own.shape)
            yield Change(
                "the producer", an(own.opcode), an(made.opcode), with_producer(opened, made)
            )
            return
        for element in [each for each in own.users if each.opcode == "get-tuple-element"]:
            if element in opened.path() and element.shape.is_array:
                made = multiplied(opened.entry, element.shape)
                opened.entry.replace_uses(element, made)
                opened.producer = made
                yield Change("the producer", an(own.opcode), an(made.opcode), opened.close())
                return


class ExpensiveProducer:
    """The producer is of some kind: an expensive elementwise operation. If it is refused too while
    a cheap one is fused, the cost of computing it is what counts.
    """

    __slots__ = ()
    name = "producer's kind"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        own = opened.producer
        if own.shape.is_array and own.shape.element_type in ("f32", "f64", "bf16", "f16"):
            given = opened.entry.make_parameter(own.shape)
            made = opened.entry.make(_EXPENSIVE, own.shape, [given])
            yield Change(
                "the producer", an(own.opcode), an(made.opcode), with_producer(opened, made)
            )


class ElementwiseConsumer:
    """The consumer is an operation of some kind: an elementwise one."""

    __slots__ = ()
    name = "consumer's operation"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        own = opened.consumer
        read = [each for each in opened.chain() if each.shape.is_array]
        if not read:
            return
        made = added(read[-1])
        results = [each for each in opened.results if each is not own]
        for user in [each for each in own.users if each is not opened.entry.root]:
            replace_with_parameter(own, user)
        opened.set_results([*results, made])
        opened.consumer = made
        yield Change("the consumer", an(own.opcode), an(made.opcode), opened.close())
