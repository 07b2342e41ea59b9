"""What of a matrix product's surroundings ends in its kernel.

A kernel for a TPU computes one matrix product, elementwise operations before and behind it, and may
end with a reduction. This guesses how far a value goes on in its kernel, from the stage before
fusion.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.graph.properties import is_one_elementwise
from fusionscope.history.operations import is_view
from fusionscope.hlo import Computation, Instruction
from fusionscope.hlo.search import reachable

PRODUCTS = frozenset({"convolution", "dot"})


class Kernels:
    """The kernels of one computation.

    ``product`` holds, for each value that is computed in the kernel of a matrix product, that
    product: itself, or one that elementwise operations follow, each read by the next alone. A
    conversion to a wider type begins another kernel: it is repeated where it is read.

    ``end`` holds, for each operation, the last that its value goes on to in one kernel.
    """

    def __init__(self, computation: Computation) -> None:
        self.product: dict[Instruction, Instruction] = {}
        self.end: dict[Instruction, Instruction] = {}
        for instruction in computation.instructions:
            product = self._find_product(instruction)
            if product is not None:
                self.product[instruction] = product
        for instruction in reversed(computation.instructions):
            self.end[instruction] = self._find_end(instruction)

    def _find_product(self, value: Instruction) -> Instruction | None:
        if value.opcode in PRODUCTS:
            return value
        if not _computes(value) or value.opcode == "copy" or _widens(value):
            return None
        before = (
            self.product.get(operand)
            for operand in map(viewed, value.operands)
            if read_once(operand)
        )
        return next(filter(None, before), None)

    def _find_end(self, value: Instruction) -> Instruction:
        if not _computes(value) and value.opcode not in PRODUCTS:
            return value
        ends = {self._end_through(reader) or value for reader in readers(value)[0]}
        return ends.pop() if len(ends) == 1 else value

    def is_read_again(self, value: Instruction) -> bool:
        """Return whether several operations read a value that is computed with a product."""
        reading, is_result = readers(value)
        return value in self.product and len(reading) + is_result > 1

    def converge(self, value: Instruction) -> bool:
        """Return whether all that reads a value ends in one kernel."""
        ends = {self._end_through(reader) for reader in readers(value)[0]}
        return len(ends) == 1 and None not in ends

    def _end_through(self, reader: Instruction) -> Instruction | None:
        """Return the last operation in the kernel of ``reader``; None if it cannot be in that of
        what it reads.
        """
        is_joined = _computes(reader) or reader.opcode in PRODUCTS or reader.opcode == "reduce"
        return self.end[reader] if is_joined else None

    def other_products(self, value: Instruction, consumer: Instruction) -> tuple[bool, bool]:
        """Return whether the kernel of ``consumer`` computes another product than the one that
        ``value`` comes from, and whether one comes behind it there.
        """
        kernel = set(reachable([consumer], lambda op: () if self.end[op] is op else readers(op)[0]))
        beside = {
            self.product.get(operand)
            for reader in kernel
            for operand in map(viewed, reader.operands)
            if operand not in kernel and read_once(operand)
        }
        beside -= {None, self.product.get(value)}
        return bool(beside), any(reader.opcode in PRODUCTS for reader in kernel)


def readers(value: Instruction) -> tuple[list[Instruction], bool]:
    """Return what reads a value, through views, and whether it is a result of its computation."""
    values = [*reachable([value], lambda view: filter(is_view, view.users))]
    users = dict.fromkeys(user for view in values for user in view.users)
    is_result = any(view.is_root for view in values) or any(u.opcode == "tuple" for u in users)
    return [user for user in users if user.opcode != "tuple" and not is_view(user)], is_result


def read_once(value: Instruction) -> bool:
    """Return whether one operation reads a value, which is no result."""
    reading, is_result = readers(value)
    return len(reading) == 1 and not is_result


def viewed(value: Instruction) -> Instruction:
    """Return what a view, or a view of one, is a view of."""
    while is_view(value):
        value = value.operands[0]
    return value


def waits(consumer: Instruction, producer: Instruction) -> bool:
    """Return whether ``consumer`` also reads what is computed from ``producer`` by other than
    elementwise operations, so from more than one element of it.
    """

    def uses(place: tuple[Instruction, bool]) -> Iterator[tuple[Instruction, bool]]:
        value, is_cut = place
        for user in value.users:
            if user.index < consumer.index:
                yield user, is_cut or not (_computes(user) or is_view(user))

    places = reachable([(producer, False)], uses)
    return any(is_cut and consumer in value.users for value, is_cut in places)


def _computes(instruction: Instruction) -> bool:
    return (
        is_one_elementwise(instruction)
        and instruction.opcode != "constant"
        and instruction.shape.is_array
        and instruction.shape.rank > 0
    )


def _widens(convert: Instruction) -> bool:
    return (
        convert.opcode == "convert"
        and convert.operands[0].shape.byte_size < convert.shape.byte_size
    )
