"""What an experiment changes, one thing at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from fusionscope.experiments.cut import Cut, OpenCut, replace_with_parameter
from fusionscope.experiments.resize import resized
from fusionscope.graph.mutable import MutableComputation, MutableInstruction, replace_operand
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.attributes import read_value
from fusionscope.hlo.inference import Operation, infer_shape
from fusionscope.hlo.shape import Shape

_EXPENSIVE = "exponential"
_FEW = 4  # of several equal things, how many are changed one by one
_SCALES = ((1, 8), (8, 1), (1, 64), (64, 1))  # of one dimension, as fractions
_OTHER_TYPES = {"f32": ("bf16", "s32"), "bf16": ("f32",), "f16": ("f32",), "s32": ("f32",)}


@dataclass(frozen=True, slots=True)
class Change:
    """A cut with one thing changed, ``what``, which was ``before`` and is ``after``."""

    what: str
    before: str
    after: str
    cut: Cut


class Factor(Protocol):
    """One thing that can be changed about a cut. ``name`` is what an answer calls it."""

    @property
    def name(self) -> str: ...

    def changes(self, cut: Cut) -> Iterator[Change]:
        """Yield what can be tried."""


class OtherUsers:
    """Other operations read the producer's value: without them."""

    __slots__ = ()
    name = "other users"

    def changes(self, cut: Cut) -> Iterator[Change]:
        opened = cut.edit()
        users = opened.other_users()
        if not users:
            return
        words = _listed(users)
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
                before = f"computed by {_listed(others)}"
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
        words = _listed(users)
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
        made = _added(consumer)
        results = [made if each is consumer else each for each in opened.results]
        opened.set_results(results)
        yield Change(
            "the consumer",
            "a single operation",
            f"an operation and {_an(made.opcode)}",
            opened.close(),
        )


class Sizes:
    """Arrays are as large as they are: smaller or larger."""

    __slots__ = ()
    name = "size"

    def changes(self, cut: Cut) -> Iterator[Change]:
        for numerator, denominator in _SCALES:
            for size in _sizes(cut)[:_FEW]:
                if size * numerator % denominator:
                    continue
                change = self.change(cut, size, size * numerator // denominator)
                if change is not None:
                    yield change

    @staticmethod
    def change(cut: Cut, old: int, new: int) -> Change | None:
        """Return the change of the size ``old`` to ``new``, if it is possible."""
        made = resized(cut, old, new)
        return None if made is None else Change("the dimension", str(old), str(new), made)


class ElementType:
    """Arrays have a type: another one."""

    __slots__ = ()
    name = "element type"

    def changes(self, cut: Cut) -> Iterator[Change]:
        named = {each.name: each for each in cut.module.entry.instructions}
        own = named[cut.producer].shape
        if own.is_array and cut.around in ("the pair", "other users"):
            for other in _OTHER_TYPES.get(own.element_type, ()):
                yield Change("the element type", own.element_type, other, _retyped(cut, own, other))


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
                made = _concatenated(opened.entry, own.shape, dimension, 2)
            else:
                made = self._shortened(own, own.operands.index(opened.chain()[-1]), dimension)
            _take_place(opened, own, made)
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
                made = _concatenated(opened.entry, producer.shape, other, count)
                what = "the dimension of the concatenate"
                yield Change(what, str(own), str(other), _with_producer(opened, made))

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
        _take_place(opened, consumer, made)
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
            made = _multiplied(opened.entry, own.shape)
            yield Change(
                "the producer", _an(own.opcode), _an(made.opcode), _with_producer(opened, made)
            )
            return
        for element in [each for each in own.users if each.opcode == "get-tuple-element"]:
            if element in opened.path() and element.shape.is_array:
                made = _multiplied(opened.entry, element.shape)
                opened.entry.replace_uses(element, made)
                opened.producer = made
                yield Change("the producer", _an(own.opcode), _an(made.opcode), opened.close())
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
                "the producer", _an(own.opcode), _an(made.opcode), _with_producer(opened, made)
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
        made = _added(read[-1])
        results = [each for each in opened.results if each is not own]
        for user in [each for each in own.users if each is not opened.entry.root]:
            replace_with_parameter(own, user)
        opened.set_results([*results, made])
        opened.consumer = made
        yield Change("the consumer", _an(own.opcode), _an(made.opcode), opened.close())


_OTHER_USERS, _CONSUMER_FUSED = OtherUsers(), ConsumerFused()
_PRODUCER, _CONSUMER = CheapProducer(), ElementwiseConsumer()
# The most specific first: the first that makes the compiler fuse the pair is called its cause.
FACTORS: tuple[Factor, ...] = (
    ReadOnce(),
    _OTHER_USERS,
    ProducerAsResult(),
    ProducerReadsOne(),
    Users(),
    OtherOperands(),
    ScalarConstant(),
    _CONSUMER_FUSED,
    Operands(),
    Dimension(),
    Sizes(),
    Surroundings(),
    _PRODUCER,
    _CONSUMER,
    ExpensiveProducer(),
    ElementType(),
)
# Of these, two are changed at once where none alone makes a difference.
COMBINED: tuple[Factor, ...] = (_OTHER_USERS, _CONSUMER_FUSED, _PRODUCER, _CONSUMER)


def _an(opcode: str) -> str:
    return f"{'an' if opcode[0] in 'aeiou' else 'a'} {opcode}"


def _listed(instructions: list[MutableInstruction]) -> str:
    counted = dict.fromkeys(each.opcode for each in instructions)
    words = [
        f"{count} {opcode}"
        if (count := sum(e.opcode == opcode for e in instructions)) > 1
        else opcode
        for opcode in counted
    ]
    return ", ".join(words[:3]) + (", …" if len(words) > 3 else "")


def _multiplied(computation: MutableComputation, shape: Shape) -> MutableInstruction:
    """Return a cheap operation of two new parameters of ``shape``, an array."""
    opcode = "and" if shape.element_type == "pred" else "multiply"
    return computation.make(opcode, shape, [computation.make_parameter(shape) for _ in range(2)])


def _added(value: MutableInstruction) -> MutableInstruction:
    """Return a cheap operation of ``value``, an array, and a new parameter. No simplification
    joins it with the value.
    """
    opcode = "or" if value.shape.element_type == "pred" else "add"
    other = value.computation.make_parameter(value.shape)
    return value.computation.make(opcode, value.shape, [value, other])


def _concatenated(
    computation: MutableComputation, shape: Shape, dimension: int, count: int
) -> MutableInstruction:
    """Return a concatenate of ``count`` new parameters, of ``shape``."""
    sizes = shape.dimensions
    whole, operands = sizes[dimension] or 0, []
    for number in range(count):
        part = whole // count + (number < whole % count)
        parted = (*sizes[:dimension], part, *sizes[dimension + 1 :])
        operands.append(computation.make_parameter(replace(shape, dimensions=parted)))
    return computation.make("concatenate", shape, operands, f", dimensions={{{dimension}}}")


def _with_producer(opened: OpenCut, made: MutableInstruction) -> Cut:
    _take_place(opened, opened.producer, made)
    return opened.close()


def _take_place(opened: OpenCut, old: MutableInstruction, made: MutableInstruction) -> None:
    """Put ``made`` in the place of ``old``. What expects the shape of ``old`` gets a parameter."""
    if made.shape.dimensions != old.shape.dimensions:
        for user in [each for each in old.users if each not in (made, opened.entry.root)]:
            replace_with_parameter(old, user)
    is_read = any(user is not made for user in old.users)
    opened.entry.replace_uses(old, made)
    opened.set_results(opened.results if is_read else [*opened.results, made])
    if opened.producer is old:
        opened.producer = made
    if opened.consumer is old:
        opened.consumer = made


def _sizes(cut: Cut) -> list[int]:
    """Return the sizes of the pair's dimensions, the most frequent first."""
    named = {each.name: each for each in cut.module.entry.instructions}
    found: dict[int, int] = {}
    for name in (cut.producer, cut.consumer):
        shapes = [named[name].shape, *(each.shape for each in named[name].operands)]
        for shape in shapes:
            for size in shape.dimensions:
                if size is not None and size > 1:
                    found[size] = found.get(size, 0) + 1
    return sorted(found, key=lambda size: -found[size])


def _retyped(cut: Cut, own: Shape, other: str) -> Cut:
    """Return the cut with ``other`` in place of the element type of ``own``, everywhere."""
    opened = cut.edit()

    def change(shape: Shape) -> Shape:
        if shape.is_tuple:
            return replace(shape, elements=tuple(map(change, shape.elements)))
        return (
            replace(shape, element_type=other) if shape.element_type == own.element_type else shape
        )

    for each in opened.graph.walk():
        each.shape = change(each.shape)
    return opened.close()
