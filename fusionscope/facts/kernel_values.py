"""The values that pass between the launches of a computation, with their producers and
consumers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusionscope.history.kernels import is_launched
from fusionscope.history.outcomes import is_looked_through
from fusionscope.history.thunks import NOT_LAUNCHED
from fusionscope.history.traffic import traffic
from fusionscope.hlo import Instruction, Shape

_WAITS = frozenset({"async-done", "async-update", "copy-done"})
# Inside a kernel these change the representation of a value, but not the value.
_NOTATIONS = frozenset({"bitcast", "convert"})


@dataclass(frozen=True, slots=True, eq=False)
class ValueUse:
    """A launch that reads a value, and its operand that is the value or a bitcast of it."""

    reader: Instruction
    operand: Instruction

    @property
    def byte_size(self) -> int:
        """Return the bytes of the value that the reader reads."""
        return traffic(self.reader).operands[self.operand]

    @property
    def users(self) -> tuple[tuple[Instruction, Instruction], ...]:
        """The operations in the reader that use the value, with the instructions that they read."""
        inside = _parameters(self.reader, self.operand)
        return tuple(users_of(*inside)) if inside else ((self.reader, self.operand),)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """One result of a launch.

    ``readings`` are the launches of the same computation that read it; ``is_kept`` is whether it is
    also passed on: to the caller, a loop, a branch.
    """

    maker: Instruction
    path: tuple[int, ...]
    shape: Shape
    readings: tuple[ValueUse, ...]
    is_kept: bool

    @property
    def readers(self) -> frozenset[Instruction]:
        return frozenset(reading.reader for reading in self.readings)

    @property
    def is_read_once(self) -> bool:
        return not self.is_kept and len(self.readers) == 1

    @property
    def made_by(self) -> Instruction:
        """Return the operation that computes it: for a fusion, the one inside."""
        inner = self.maker
        path = self.path
        while inner.opcode in ("fusion", "async-start", "tuple", "bitcast"):
            if inner.opcode == "tuple" and path and path[0] < len(inner.operands):
                inner, path = inner.operands[path[0]], path[1:]
            elif inner.opcode == "bitcast" and inner.operands:
                inner = inner.operands[0]
            elif inner.called:
                inner = inner.called[0].root
            else:
                break
        return inner


def users_of(*values: Instruction) -> Iterator[tuple[Instruction, Instruction]]:
    """Yield the users of ``values``, each with the instruction that it reads. Views are
    transparent, and users inside of fusions are included.
    """
    pending = list(reversed(values))
    while pending:
        value = pending.pop()
        for user in value.users:
            if user.opcode in _NOTATIONS:
                pending.append(user)
            elif user.opcode == "fusion" and user.called:
                pending.extend(_parameters(user, value))
            else:
                yield user, value


def _parameters(launch: Instruction, operand: Instruction) -> tuple[Instruction, ...]:
    """Return the parameters for ``operand`` inside a fusion; none if ``launch`` is no fusion."""
    if launch.opcode not in ("fusion", "async-start"):
        return ()
    cache: dict[int, dict[Instruction, list[Instruction]]]
    cache = launch.computation.cache("parameters of operands")
    inside = cache.get(launch.index)
    if inside is None:
        inside = cache[launch.index] = {}
        for computation in launch.called[:1]:
            for outer, parameter in zip(launch.operands, computation.parameters, strict=False):
                inside.setdefault(outer, []).append(parameter)
    return tuple(inside.get(operand, ()))


def results_of(launch: Instruction) -> tuple[Value, ...]:
    """Return the results of a launch."""
    shape = launch.shape
    if launch.opcode == "async-start" and len(shape.elements) > 1:
        shape = shape.elements[1]  # operands come first
    return tuple(
        _value(launch, path, part)
        for path, part in shape.parts()
        if not (part.is_tuple and part.elements)
    )


def operands_of(launch: Instruction) -> tuple[Value, ...]:
    """Return the operands of a launch that other launches make, each once."""
    values: dict[tuple[Instruction, tuple[int, ...]], Value] = {}
    for operand in launch.operands:
        maker, path = origin(operand)
        if is_launched(maker) and (maker, path) not in values:
            values[maker, path] = _value(maker, path, operand.shape)
    return tuple(values.values())


def origin(operand: Instruction) -> tuple[Instruction, tuple[int, ...]]:
    """Return the producer of ``operand``, and the index of its result."""
    path: list[int] = []
    while operand.operands:
        if operand.opcode == "get-tuple-element":
            path.append(_index(operand))
        elif operand.opcode == "tuple" and path and path[-1] < len(operand.operands):
            operand = operand.operands[path.pop()]
            continue
        elif operand.opcode not in _WAITS and not is_looked_through(operand):
            break
        operand = operand.operands[0]
    return operand, tuple(reversed(path))


def _value(maker: Instruction, path: tuple[int, ...], shape: Shape) -> Value:
    readings: list[ValueUse] = []
    is_kept = False
    pending = [(maker, path)]
    while pending:
        instruction, path_left = pending.pop()
        is_kept = is_kept or instruction.is_root
        for user in instruction.users:
            if user.opcode == "get-tuple-element":
                if path_left and _index(user) == path_left[0]:
                    pending.append((user, path_left[1:]))
            elif user.opcode in _WAITS or (user.opcode == "bitcast" and not path_left):
                pending.append((user, path_left))
            elif user.opcode in NOT_LAUNCHED:
                is_kept = True
            else:
                readings.append(ValueUse(user, instruction))
    return Value(maker, path, shape, tuple(readings), is_kept)


def _index(element: Instruction) -> int:
    index = element.attribute("index")
    return index if isinstance(index, int) else 0
