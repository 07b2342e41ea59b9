"""Computes what a loop's body computes, for all steps at once.

The values of all steps are stacked: the first dimension is the number of the step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fusionscope.advise.recipes.patterns import dot_dimensions, integers
from fusionscope.advise.recipes.rows import is_run
from fusionscope.graph.fusing import clone_into
from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.hlo.shape import Shape

ELEMENTWISE = frozenset(
    """abs add and atan2 bitcast-convert cbrt ceil clamp compare convert cosine count-leading-zeros
    divide erf exponential exponential-minus-one fft floor is-finite log log-plus-one logistic
    maximum minimum multiply negate not opt-barrier or popcnt power remainder
    round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic
    shift-right-logical sign sine sqrt subtract tan tanh xor""".split()
)


@dataclass(frozen=True, slots=True)
class Value:
    """A value outside of a loop: that of all steps if ``is_stacked``, else the same in each."""

    instruction: MutableInstruction
    is_stacked: bool

    @property
    def shape(self) -> Shape:
        return self.instruction.shape


@dataclass(frozen=True, slots=True)
class Form:
    """How an instruction becomes one that computes all steps.

    ``text`` are its attributes, ``stacked`` says which operands need the dimension of steps even if
    they are the same in each. The result's dimension of steps is at ``place``.
    """

    text: str
    stacked: tuple[bool, ...]
    place: int = 0


def form_of(instruction: MutableInstruction, stacked: Sequence[bool], steps: int) -> Form | None:
    """Return the form of an instruction of which some operands are ``stacked``; None if it has
    none, or is not known to have one.
    """
    if not instruction.shape.is_array or None in instruction.shape.dimensions:
        return None
    if instruction.opcode in ELEMENTWISE and _keeps_shape(instruction):
        return Form(instruction.attributes_text, (True,) * len(stacked))
    rule = _RULES.get(instruction.opcode)
    return rule(instruction, stacked, steps) if rule is not None else None


def _keeps_shape(instruction: MutableInstruction) -> bool:
    return instruction.opcode == "fft" or all(
        operand.shape.dimensions in ((), instruction.shape.dimensions)
        for operand in instruction.operands
    )


def _moved(dimensions: Iterable[int]) -> str:
    return integers([dimension + 1 for dimension in dimensions])


def with_attributes(instruction: MutableInstruction, values: dict[str, str]) -> str:
    """Return its attributes, with ``values`` for some."""
    text = instruction.attributes_text
    for key, value in values.items():
        text = re.sub(rf", {key}=(?:\{{[^{{}}]*\}}|[^,{{}}\s]+)", "", text)
        text = f", {key}={value}{text}"
    return text


def _broadcast(instruction: MutableInstruction, stacked: Sequence[bool], steps: int) -> Form:
    dimensions = [0, *(place + 1 for place in instruction.attribute("dimensions") or ())]
    return Form(with_attributes(instruction, {"dimensions": integers(dimensions)}), (True,))


def _reshape(instruction: MutableInstruction, stacked: Sequence[bool], steps: int) -> Form:
    return Form(instruction.attributes_text, (True,))


def _transpose(instruction: MutableInstruction, stacked: Sequence[bool], steps: int) -> Form:
    dimensions = [0, *(place + 1 for place in instruction.attribute("dimensions"))]
    return Form(with_attributes(instruction, {"dimensions": integers(dimensions)}), (True,))


def _over_dimensions(instruction: MutableInstruction, stacked: Sequence[bool], steps: int) -> Form:
    """Reversals and concatenations."""
    dimensions = _moved(instruction.attribute("dimensions"))
    return Form(with_attributes(instruction, {"dimensions": dimensions}), (True,) * len(stacked))


def _reduce(instruction: MutableInstruction, stacked: Sequence[bool], steps: int) -> Form | None:
    if len(instruction.operands) != 2 or stacked[1]:
        return None
    dimensions = _moved(instruction.attribute("dimensions"))
    return Form(with_attributes(instruction, {"dimensions": dimensions}), (True, False))


def _slice(instruction: MutableInstruction, stacked: Sequence[bool], steps: int) -> Form:
    bounds = instruction.attributes["slice"].strip("{} ")
    ranges = f"{{[0:{steps}]{f', {bounds}' if bounds else ''}}}"
    text = re.sub(r", slice=\{[^{}]*\}", f", slice={ranges}", instruction.attributes_text)
    return Form(text, (True,))


def _pad(instruction: MutableInstruction, stacked: Sequence[bool], steps: int) -> Form | None:
    if stacked[1] or not instruction.shape.dimensions:
        return None
    padding = f"0_0x{instruction.attributes['padding']}"
    return Form(with_attributes(instruction, {"padding": padding}), (True, False))


def _dot(instruction: MutableInstruction, stacked: Sequence[bool], steps: int) -> Form | None:
    if "sparsity" in instruction.attributes_text:
        return None
    sides, has_batch = ("lhs", "rhs"), bool(instruction.attribute("lhs_batch_dims"))
    on_both = all(stacked) or has_batch
    roles = (on_both or stacked[0], on_both or stacked[1])
    values = {}
    for side, is_stacked in zip(sides, roles, strict=True):
        for role in ("contracting", "batch"):
            key = f"{side}_{role}_dims"
            places = [place + is_stacked for place in instruction.attribute(key) or ()]
            if role == "batch" and on_both:
                places.insert(0, 0)
            if places:
                values[key] = integers(places)
    place = 0 if roles[0] else len(dot_dimensions(instruction).left_free)
    return Form(with_attributes(instruction, values), roles, place)


def _gather(instruction: MutableInstruction, stacked: Sequence[bool], steps: int) -> Form | None:
    if stacked[0]:
        return None
    values = {"index_vector_dim": str(int(instruction.attribute("index_vector_dim")) + 1)}
    for key in ("offset_dims", "start_indices_batching_dims"):
        if instruction.attribute(key) is not None:
            values[key] = _moved(instruction.attribute(key))
    text = with_attributes(instruction, values).replace(", indices_are_sorted=true", "")
    return Form(text, (False, True))


_RULES: dict[str, Callable[[MutableInstruction, Sequence[bool], int], Form | None]] = {
    "broadcast": _broadcast,
    "concatenate": _over_dimensions,
    "dot": _dot,
    "gather": _gather,
    "pad": _pad,
    "reduce": _reduce,
    "reshape": _reshape,
    "reverse": _over_dimensions,
    "slice": _slice,
    "transpose": _transpose,
}


@dataclass(frozen=True, slots=True)
class Builder:
    """Adds instructions to ``target``, with the metadata of ``near``, for loops of ``steps``."""

    target: MutableComputation
    near: MutableInstruction
    steps: int

    def make(self, opcode: str, shape: Shape, operands: Iterable[Value], text: str = "") -> Value:
        """Add an instruction whose result is stacked."""
        metadata = self.near.attributes.get("metadata")
        suffix = f", metadata={metadata}" if metadata is not None else ""
        sources = [operand.instruction for operand in operands]
        instruction = self.target.make(opcode, shape, sources, text + suffix)
        instruction.origin = self.near.origin
        return Value(instruction, True)

    def stacked(self, shape: Shape) -> Shape:
        """Return the shape of the values of all steps."""
        return Shape(shape.element_type, (self.steps, *shape.dimensions))

    def clone(self, original: MutableInstruction, operands: Sequence[Value]) -> Value:
        """Add an instruction that computes what ``original`` does in each step."""
        flags = [operand.is_stacked for operand in operands]
        if not any(flags):
            sources = [operand.instruction for operand in operands]
            return Value(clone_into(original, self.target, sources), False)
        form = form_of(original, flags, self.steps)
        assert form is not None, original.opcode
        size = original.shape.dimensions if original.opcode in ELEMENTWISE - {"fft"} else None
        sources = [
            self._fit(operand, size).instruction if is_stacked else operand.instruction
            for operand, is_stacked in zip(operands, form.stacked, strict=True)
        ]
        clone = clone_into(original, self.target, sources)
        clone.attributes_text = form.text
        dimensions = list(original.shape.dimensions)
        dimensions.insert(form.place, self.steps)
        clone.shape = Shape(original.shape.element_type, tuple(dimensions))
        return self._in_front(Value(clone, True), form.place)

    def _in_front(self, value: Value, place: int) -> Value:
        """Return ``value`` with its dimension of steps, which is at ``place``, as the first."""
        if place == 0:
            return value
        order = [place, *(number for number in range(value.shape.rank) if number != place)]
        sizes = tuple(value.shape.dimensions[number] for number in order)
        shape = Shape(value.shape.element_type, sizes)
        return self.make("transpose", shape, [value], f", dimensions={integers(order)}")

    def _fit(self, operand: Value, dimensions: tuple[int | None, ...] | None) -> Value:
        """Return ``operand`` stacked, and as many numbers of each step as ``dimensions`` say."""
        sizes = operand.shape.dimensions[operand.is_stacked :]
        filled = sizes if dimensions is None else dimensions
        if operand.is_stacked and sizes == filled:
            return operand
        places = range(1, len(sizes) + 1)
        text = f", dimensions={integers([0, *places] if operand.is_stacked else list(places))}"
        shape = Shape(operand.shape.element_type, (self.steps, *filled))
        return self.make("broadcast", shape, [operand], text)

    def stack(self, value: Value) -> Value:
        """Return ``value`` with the dimension of steps."""
        return self._fit(value, None)

    def pick(self, array: Value, numbers: Sequence[int], shape: Shape) -> Value | None:
        """Return the slices of ``array`` of one element each at ``numbers``, of ``shape``: None if
        these are not consecutive.
        """
        is_reversed = numbers[0] > numbers[-1]
        first = min(numbers)
        if (
            not is_run(numbers)
            or first < 0
            or first + self.steps > (array.shape.dimensions[0] or 0)
        ):
            return None
        rows_read = self.cut(array, first, first + self.steps)
        if is_reversed:
            rows_read = self.make("reverse", rows_read.shape, [rows_read], ", dimensions={0}")
        return self.make("reshape", self.stacked(shape), [rows_read])

    def cut(self, array: Value, start: int, end: int, stride: int = 1) -> Value:
        """Return some of the rows of ``array``."""
        count, *sizes = array.shape.dimensions
        if (start, end, stride) == (0, count, 1):
            return array
        step = f":{stride}" if stride != 1 else ""
        ranges = ", ".join([f"[{start}:{end}{step}]", *(f"[0:{size}]" for size in sizes)])
        shape = Shape(array.shape.element_type, (-((start - end) // stride), *sizes))
        return self.make("slice", shape, [array], f", slice={{{ranges}}}")

    def join(self, parts: Sequence[Value]) -> Value:
        """Return the rows of all ``parts``."""
        rows = sum(part.shape.dimensions[0] or 0 for part in parts)
        shape = Shape(parts[0].shape.element_type, (rows, *parts[0].shape.dimensions[1:]))
        return self.make("concatenate", shape, parts, ", dimensions={0}")

    def row(self, value: Value) -> Value:
        """Return ``value`` as an array of one row."""
        shape = Shape(value.shape.element_type, (1, *value.shape.dimensions))
        return self.make("reshape", shape, [value])

    def last(self, stacked: Value) -> Value:
        """Return what a stacked value is in the last step."""
        rows, *sizes = stacked.shape.dimensions
        end = self.cut(stacked, (rows or 1) - 1, rows or 1)
        shape = Shape(stacked.shape.element_type, tuple(sizes))
        return self.make("reshape", shape, [end])
