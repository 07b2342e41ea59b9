"""Tells whether comparing two modules makes sense: versions of one program, for one device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from fusionscope.history.matching import PLACES, Matching
from fusionscope.history.operations import plain_shape
from fusionscope.history.pairing import CERTAIN
from fusionscope.hlo import Instruction, Module

# Two modules are versions of one program if any of their shares reaches its limit. Each of 103
# pairs of versions among the samples (other compilers, devices, flags) reaches one, as does each of
# 53 samples with all sizes doubled.
_CERTAIN_OPERATIONS = 0.4
_PARAMETERS = 0.5  # this one has to be exceeded
_NAMED_OPERATIONS = 0.6
_IGNORED_OPCODES = PLACES | {"bitcast", "constant", "copy"}  # compilers add and drop these


class Doubt(StrEnum):
    PROGRAMS = "programs"
    BACKENDS = "backends"
    DEVICES = "devices"


@dataclass(frozen=True, slots=True)
class Unrelated:
    """Why a comparison means little: the modules are different ``programs``, or were compiled for
    different ``backends`` or ``devices``.

    kind: ``programs``, ``backends`` or ``devices``: what is not the same
    text: the reason in one line
    """

    kind: Doubt
    text: str


@dataclass(frozen=True, slots=True)
class _Shares:
    """What two modules have in common, each between 0 and 1.

    ``operations`` are those that are certainly the same, and ``names`` those that are matched and
    have the framework's name in common, both as shares of the smaller module's; ``parameters`` are
    the entry parameters of equal shapes, as a share of the larger number.
    """

    operations: float
    parameters: float
    names: float

    @property
    def are_related(self) -> bool:
        return (
            self.operations >= _CERTAIN_OPERATIONS
            or self.parameters > _PARAMETERS
            or self.names >= _NAMED_OPERATIONS
        )


def different_programs(matching: Matching) -> Unrelated | None:
    """Return why a comparison of two programs means little; None for versions of one program."""
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
    """Return why a comparison across backends or devices means little; None if both are the same,
    or one is unknown: an empty backend, or None as a device.
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
    """Return None if one of the two modules has no operations."""
    before, after = (list(_operations(module)) for module in matching.modules)
    smaller = min(len(before), len(after))
    if not smaller:
        return None
    certain = names = 0
    for operation in before:
        counterpart = matching.after.get(operation)
        if counterpart is not None:
            certain += matching.steps[operation] in CERTAIN
            names += _has_same_name(operation, counterpart)
    return _Shares(certain / smaller, _share_of_parameters(matching), names / smaller)


def _operations(module: Module) -> Iterator[Instruction]:
    return (
        instruction for instruction in module.walk() if instruction.opcode not in _IGNORED_OPCODES
    )


def _has_same_name(operation: Instruction, counterpart: Instruction) -> bool:
    """Return whether the framework gave both one name, and they compute the same."""
    name = operation.op_name
    is_same = name is not None and name == counterpart.op_name
    return is_same and operation.opcode == counterpart.opcode


def _share_of_parameters(matching: Matching) -> float:
    before, after = (_parameter_shapes(module) for module in matching.modules)
    larger = max(before.total(), after.total())
    return (before & after).total() / larger if larger else 0.0


def _parameter_shapes(module: Module) -> Counter[str]:
    return Counter(plain_shape(parameter.statement.shape) for parameter in module.entry.parameters)
