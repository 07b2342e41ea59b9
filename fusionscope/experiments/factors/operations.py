"""Factors in the producer and the consumer: their operations, and how these work."""

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
    """The number of operands of a concatenate: two instead of many."""

    __slots__ = ()
    name = "number of operands"

    def changes(self, cut: Cut) -> Iterator[Change]:
        for whose in ("consumer", "producer"):
            opened = cut.edit()
            concatenate: MutableInstruction = getattr(opened, whose)
            if concatenate.opcode != "concatenate" or len(concatenate.operands) < 3:
                continue
            (dimension,) = concatenate.attribute("dimensions")
            if whose == "producer":
                shorter = concatenated(opened.entry, concatenate.shape, dimension, 2)
            else:
                shorter = self._shortened(
                    concatenate, concatenate.operands.index(opened.chain()[-1]), dimension
                )
            take_place(opened, concatenate, shorter)
            yield Change(
                f"operands of the {whose}", str(len(concatenate.operands)), "2", opened.close()
            )

    def _shortened(
        self, concatenate: MutableInstruction, place: int, dimension: int
    ) -> MutableInstruction:
        """Return a concatenate of the operand at ``place`` and one other operand."""
        operands = [concatenate.operands[place], concatenate.operands[0 if place else 1]]
        sizes = list(concatenate.shape.dimensions)
        sizes[dimension] = sum(operand.shape.dimensions[dimension] or 1 for operand in operands)
        shape = replace(concatenate.shape, dimensions=tuple(sizes))
        return concatenate.computation.make(
            concatenate.opcode, shape, operands, concatenate.attributes_text
        )


class Dimension:
    """The dimension along which the consumer pads, concatenates or reduces, or the producer
    concatenates.
    """

    __slots__ = ()
    name = "dimension"

    def changes(self, cut: Cut) -> Iterator[Change]:
        yield from self._of_consumer(cut)
        yield from self._of_producer(cut)

    def _of_producer(self, cut: Cut) -> Iterator[Change]:
        by_name = {instruction.name: instruction for instruction in cut.module.entry.instructions}
        producer = by_name[cut.producer]
        if producer.opcode != "concatenate":
            return
        (dimension,) = _dimensions_of(producer.opcode, producer.attributes, producer.shape.rank)
        count = len(producer.operands)
        for new_dimension in reversed(range(producer.shape.rank)):
            if (
                new_dimension != dimension
                and (producer.shape.dimensions[new_dimension] or 0) >= count
            ):
                opened = cut.edit()
                concatenate = concatenated(opened.entry, producer.shape, new_dimension, count)
                what = "the dimension of the concatenate"
                yield Change(
                    what, str(dimension), str(new_dimension), with_producer(opened, concatenate)
                )

    def _of_consumer(self, cut: Cut) -> Iterator[Change]:
        by_name = {instruction.name: instruction for instruction in cut.module.entry.instructions}
        consumer = by_name[cut.consumer]
        rank = consumer.operands[0].shape.rank
        dimensions = _dimensions_of(consumer.opcode, consumer.attributes, rank)
        if len(dimensions) != 1:
            return
        for new_dimension in reversed(range(rank)):
            if (
                new_dimension not in dimensions
                and (moved := self._moved(cut, dimensions[0], new_dimension)) is not None
            ):
                what = f"the dimension of the {consumer.opcode}"
                yield Change(what, str(dimensions[0]), str(new_dimension), moved)

    def _moved(self, cut: Cut, dimension: int, new_dimension: int) -> Cut | None:
        opened = cut.edit()
        consumer, operands = opened.consumer, list(opened.consumer.operands)
        attributes = dict(consumer.attributes)
        if consumer.opcode == "concatenate":  # of arrays that are equal but for one dimension
            value = opened.chain()[-1]
            operands = [
                operand if operand is value else opened.entry.make_parameter(value.shape)
                for operand in operands
            ]
        if consumer.opcode == "pad":
            parts = attributes["padding"].split("x")
            parts[dimension], parts[new_dimension] = parts[new_dimension], parts[dimension]
            attributes["padding"] = "x".join(parts)
        else:
            attributes["dimensions"] = f"{{{new_dimension}}}"
        shape = infer_shape(
            Operation(
                consumer.opcode,
                [operand.shape for operand in operands],
                [computation.root.shape for computation in consumer.called],
                attributes,
            )
        )
        if shape is None or not shape.is_array:
            return None
        text = "".join(f", {key}={value}" for key, value in attributes.items())
        moved = opened.entry.make(consumer.opcode, shape, operands, text)
        moved.called = list(consumer.called)
        take_place(opened, consumer, moved)
        return opened.close()


def _dimensions_of(opcode: str, attributes: Mapping[str, str], rank: int) -> list[int]:
    """Return along which dimensions an operation pads, concatenates or reduces."""
    if opcode == "pad":
        parts = attributes["padding"].split("x")
        return [place for place, part in enumerate(parts) if part.strip("0_")]
    if opcode in ("concatenate", "reduce"):
        dimensions = read_value("dimensions", attributes["dimensions"])
        return list(dimensions) if isinstance(dimensions, tuple) else []
    return []


class ScalarConstant:
    """A constant with several elements as producer: a broadcast scalar instead."""

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
        constant_scalar = opened.entry.add(
            MutableInstruction(name, "constant", scalar, [], inside=literal)
        )
        wide = opened.entry.make("broadcast", constant.shape, [constant_scalar], ", dimensions={}")
        opened.entry.replace(constant, wide)
        opened.producer = constant_scalar
        yield Change(
            "the constant", f"{constant.shape.element_count} elements", "1", opened.close()
        )


class CheapProducer:
    """The producer's operation: a cheap elementwise one of the same shape."""

    __slots__ = ()
    name = "producer's operation"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        producer = opened.producer
        if producer.shape.is_array:
            cheap = multiplied(opened.entry, producer.shape)
            yield Change(
                "the producer", an(producer.opcode), an(cheap.opcode), with_producer(opened, cheap)
            )
            return
        for element in [user for user in producer.users if user.opcode == "get-tuple-element"]:
            if element in opened.path() and element.shape.is_array:
                cheap = multiplied(opened.entry, element.shape)
                opened.entry.replace_uses(element, cheap)
                opened.producer = cheap
                yield Change("the producer", an(producer.opcode), an(cheap.opcode), opened.close())
                return


class ExpensiveProducer:
    """The producer's operation: an expensive elementwise one. If that is refused while a cheap one
    is fused, the cost of computing the producer decides.
    """

    __slots__ = ()
    name = "producer's kind"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        producer = opened.producer
        if producer.shape.is_array and producer.shape.element_type in ("f32", "f64", "bf16", "f16"):
            parameter = opened.entry.make_parameter(producer.shape)
            expensive = opened.entry.make(_EXPENSIVE, producer.shape, [parameter])
            yield Change(
                "the producer",
                an(producer.opcode),
                an(expensive.opcode),
                with_producer(opened, expensive),
            )


class ElementwiseConsumer:
    """The consumer's operation: an elementwise one."""

    __slots__ = ()
    name = "consumer's operation"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        consumer = opened.consumer
        read = [link for link in opened.chain() if link.shape.is_array]
        if not read:
            return
        sum_of_two = added(read[-1])
        results = [result for result in opened.results if result is not consumer]
        for user in [user for user in consumer.users if user is not opened.entry.root]:
            replace_with_parameter(consumer, user)
        opened.set_results([*results, sum_of_two])
        opened.consumer = sum_of_two
        yield Change("the consumer", an(consumer.opcode), an(sum_of_two.opcode), opened.close())
