"""Whether two modules can be compared at all: versions of one program, for one kind of device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from fusionscope.history.matching import PLACES, Matching
from fusionscope.history.operations import plain_shape
from fusionscope.history.pairing import CERTAIN
from fusionscope.hlo import Instruction, Module

# Any of these makes two modules versions of one program: of the smaller module's operations, those
# that are certainly the same, or matched with the framework's name in common; of the larger one's
# entry parameters, those of the same shapes. None of 103 pairs of versions among the samples (other
# compilers, devices, flags), and none of 53 samples with all sizes doubled, falls below all three.
_CERTAIN_OPERATIONS = 0.4
_PARAMETERS = 0.5
_NAMED_OPERATIONS = 0.6


class Doubt(StrEnum):
    PROGRAMS = "programs"
    BACKENDS = "backends"
    DEVICES = "devices"


@dataclass(frozen=True, slots=True)
class Unrelated:
    """Why a comparison means little: the modules are different ``programs``, or were compiled for
    different ``backends`` or ``devices``. ``text`` says so in one line.
    """

    kind: Doubt
    text: str


@dataclass(frozen=True, slots=True)
class _Shares:
    operations: float
    parameters: float
    named: float

    @property
    def are_related(self) -> bool:
        return (
            self.operations >= _CERTAIN_OPERATIONS
            or self.parameters > _PARAMETERS
            or self.named >= _NAMED_OPERATIONS
        )


def different_programs(matching: Matching) -> Unrelated | None:
    """Return that two modules are different programs, or None if they are versions of one."""
    shares = _shares(matching)
    if shares is None or shares.are_related:
        return None
    return Unrelated(
        Doubt.PROGRAMS,
        f"these are different programs: {100 * shares.operations:.0f}% of the operations and "
        f"{100 * shares.parameters:.0f}% of the parameters are the same",
    )


def different_targets(
    backends: tuple[str, str], devices: tuple[str | None, str | None]
) -> Unrelated | None:
    """Return that two modules were compiled for different backends or devices, or None. An empty
    backend, and a device that is None, are unknown.
    """
    if all(backends) and backends[0] != backends[1]:
        sides = [
            device or backend.upper() for device, backend in zip(devices, backends, strict=True)
        ]
        return Unrelated(
            Doubt.BACKENDS,
            f"compiled for different backends ({sides[0]} and {sides[1]}): their kernels, bytes "
            "and times are not comparable",
        )
    if all(devices) and devices[0] != devices[1]:
        return Unrelated(
            Doubt.DEVICES, f"compiled for different devices ({devices[0]} and {devices[1]})"
        )
    return None


def _shares(matching: Matching) -> _Shares | None:
    """Return what two modules have in common; None if one of them has no operations."""
    operations = [list(_operations(module)) for module in matching.modules]
    total = min(map(len, operations))
    if not total:
        return None
    certain = matched_names = 0
    for operation in operations[0]:
        counterpart = matching.after.get(operation)
        if counterpart is not None:
            certain += matching.steps[operation] in CERTAIN
            name = operation.op_name
            matched_names += (
                name is not None
                and name == counterpart.op_name
                and operation.opcode == counterpart.opcode
            )
    shapes = [_parameter_shapes(module) for module in matching.modules]
    parameters = max(shape.total() for shape in shapes)
    common = (shapes[0] & shapes[1]).total()
    return _Shares(
        certain / total, common / parameters if parameters else 0.0, matched_names / total
    )


def _operations(module: Module) -> Iterator[Instruction]:
    return (instruction for instruction in module.walk() if instruction.opcode not in _NOT_COMPARED)


_NOT_COMPARED = PLACES | {"bitcast", "constant", "copy"}


def _parameter_shapes(module: Module) -> Counter[str]:
    return Counter(plain_shape(parameter.statement.shape) for parameter in module.entry.parameters)
