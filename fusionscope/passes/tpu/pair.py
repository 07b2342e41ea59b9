"""A pair as the rules for TPUs see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fusionscope.graph.properties import is_one_elementwise
from fusionscope.history.outcomes import Pair, is_looked_through
from fusionscope.hlo import Computation, Instruction
from fusionscope.hlo.attributes import read_slice
from fusionscope.hlo.search import reachable
from fusionscope.hlo.window import read_window
from fusionscope.passes.tpu.kernels import PRODUCTS, Kernels, readers


@dataclass(frozen=True, slots=True)
class TpuPair:
    """A producer and a consumer in the stage before fusion. ``slots`` are the operands of the
    consumer that are the producer's value, or a view of it. ``kernels`` are those of the
    computation.
    """

    producer: Instruction
    consumer: Instruction
    slots: tuple[int, ...]
    kernels: Kernels


@dataclass(frozen=True, slots=True)
class TpuPairs:
    """Gives pairs of one module in this form."""

    _slots: dict[Instruction, dict[Instruction, tuple[int, ...]]] = field(default_factory=dict)
    _kernels: dict[Computation, Kernels] = field(default_factory=dict)

    def of(self, pair: Pair) -> TpuPair:
        slots = self._slots.get(pair.producer)
        if slots is None:
            slots = self._slots[pair.producer] = _slots_of(pair.producer)
        computation = pair.producer.computation
        kernels = self._kernels.get(computation)
        if kernels is None:
            kernels = self._kernels[computation] = Kernels(computation)
        return TpuPair(pair.producer, pair.consumer, slots.get(pair.consumer, ()), kernels)


def _slots_of(producer: Instruction) -> dict[Instruction, tuple[int, ...]]:
    """Return the operands of each reader that are the value of ``producer``, or views of it."""
    values = dict.fromkeys(
        reachable([producer], lambda value: filter(is_looked_through, value.users))
    )
    return {
        reader: tuple(slot for slot, operand in enumerate(reader.operands) if operand in values)
        for value in values
        for reader in value.users
        if not is_looked_through(reader)
    }


def keeps_minor_dimensions(copy: Instruction, count: int) -> bool:
    """Return whether a copy leaves the ``count`` minor-most dimensions in their order: what is next
    to each other in a tile stays so.
    """
    layouts = [operand.shape.layout for operand in (copy, *copy.operands)]
    minor = [layout.minor_to_major[:count] for layout in layouts if layout is not None]
    return len(minor) == len(layouts) == 2 and minor[0] == minor[1]


def has_window_within_tiles(instruction: Instruction) -> bool:
    """Return whether it is a reduce-window along one of the two minor-most dimensions."""
    if instruction.opcode != "reduce-window":
        return False
    window = read_window(instruction.attributes.get("window", ""))
    return any(window[place].size > 1 for place in _in_tiles(instruction.operands[0]))


def has_stride_within_tiles(instruction: Instruction) -> bool:
    """Return whether it is a slice with a stride along one of the two minor-most dimensions."""
    if instruction.opcode != "slice":
        return False
    slices = read_slice(instruction.attributes["slice"])
    return any(slices[place].step > 1 for place in _in_tiles(instruction.operands[0]))


def reverses_within_tiles(instruction: Instruction) -> bool:
    """Return whether it is a reverse along one of the two minor-most dimensions."""
    if instruction.opcode != "reverse":
        return False
    return not set(instruction.attribute("dimensions")).isdisjoint(_in_tiles(instruction))


def pads_between(instruction: Instruction) -> bool:
    """Return whether it is a pad that puts elements between those of its operand."""
    if instruction.opcode != "pad":
        return False
    return any(len(numbers) > 2 and numbers[2] > 0 for numbers in instruction.attribute("padding"))


def is_read_by_products(value: Instruction) -> bool:
    """Return whether a matrix product reads a value, through views."""
    return any(reader.opcode in PRODUCTS for reader in readers(value)[0])


def is_only_padded(value: Instruction) -> bool:
    """Return whether only pads read a value, through views."""
    reading, is_result = readers(value)
    return not is_result and {reader.opcode for reader in reading} == {"pad"}


def _in_tiles(value: Instruction) -> tuple[int, ...]:
    """Return the two minor-most dimensions, which tiles extend along; none without a layout."""
    layout = value.shape.layout
    return layout.minor_to_major[:2] if layout is not None else ()


def changes_dimensions(reshape: Instruction) -> bool:
    """Return whether a reshape does more than add or remove dimensions of one element."""
    shapes = reshape.operands[0].shape, reshape.shape
    first, second = ([size for size in shape.dimensions if size != 1] for shape in shapes)
    return first != second


def ends_in_scatter(consumer: Instruction) -> bool:
    """Return whether it is a scatter, or only elementwise operations are between it and one."""

    def passed_on(value: Instruction) -> Iterable[Instruction]:
        return value.users if is_one_elementwise(value) or is_looked_through(value) else ()

    return any(map(is_scatter, reachable([consumer], passed_on)))


def is_gather(instruction: Instruction) -> bool:
    """Return whether it is a gather, of which a pass before fusion makes a kernel."""
    return _is_kernel(instruction, "gather")


def is_scatter(instruction: Instruction) -> bool:
    """Return whether it is a scatter, of which a pass before fusion makes a kernel."""
    return _is_kernel(instruction, "scatter")


def _is_kernel(instruction: Instruction, opcode: str) -> bool:
    if instruction.opcode != "fusion":
        return instruction.opcode == opcode
    return any(
        inside.opcode == opcode
        for computation in instruction.called
        for inside in computation.instructions
    )
