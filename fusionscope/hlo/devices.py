"""Writes out the devices of replica groups and shardings.

The compiler prints the same list in several notations: all numbers (``{{0,2},{1,3}}``), a
transposed iota (``[2,2]<=[2,2]T(1,0)``), or axes of a mesh (``mesh['x'=2,'y'=2] {'x'}``). Source:
XLA's ``xla/hlo/ir/replica_group.cc``, ``tile_assignment.cc`` and ``mesh_and_axis.cc``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from math import prod

_MOST_DEVICES = 1 << 20  # no machine has more: a longer list is left alone
_NUMBERS = r"\d{1,9}(?:,\d{1,9})*"
_IOTA = re.compile(rf"\[({_NUMBERS})\]<=\[({_NUMBERS})\](?:T\(({_NUMBERS})\))?")
_MESH = re.compile(r"mesh\[([^\[\]]*)\](?:,device_ids=\(([^()]*(?:\([^()]*\))?)\))?\{([^{}]*)\}")
_MESH_AXIS = re.compile(r"'([^']*)'=(\d{1,9})")
_AXIS = re.compile(r"'([^']*)'(?::\((\d{1,9})\)(\d{1,9}))?")
_MESH_IOTA = re.compile(rf"\[({_NUMBERS})\]T\(({_NUMBERS})\)")
_NOTES = re.compile(r",?metadata=\{(?:[^{}\"]|\"(?:[^\"\\]|\\.)*\"|\{[^{}]*\})*\}", re.DOTALL)


def explicit_groups(text: str) -> str:
    """Return replica groups (without spaces) as ``{{0,2},{1,3}}``, or unchanged if the notation is
    unknown.
    """
    if iota := _IOTA.fullmatch(text):
        sizes = _integers(iota[1])
        devices = _iota(_integers(iota[2]), iota[3])
        if devices is not None and len(sizes) == 2 and prod(sizes) == len(devices):
            return _grouped(devices, sizes[1])
    elif mesh := _MESH.fullmatch(text):
        return _mesh_groups(mesh[1], mesh[2], mesh[3]) or text
    return text


def explicit_sharding(text: str) -> str:
    """Return a sharding (without spaces) with all devices listed, and without metadata."""

    def listed(found: re.Match[str]) -> str:
        devices = _iota(_integers(found[2]), found[3])
        if devices is None or prod(_integers(found[1])) != len(devices):
            return found[0]
        return f"[{found[1]}]{','.join(map(str, devices))}"

    return re.sub(r"(?<=\d) (?=[a-z])", "", _IOTA.sub(listed, _NOTES.sub("", text)))


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _iota(sizes: Sequence[int], order: str | None) -> list[int] | None:
    """Return 0, 1, 2, ... in an array of these sizes with its dimensions permuted. Return None if
    ``order`` is not a permutation, or the array is larger than any machine.
    """
    places = _integers(order) if order else [*range(len(sizes))]
    if sorted(places) != [*range(len(sizes))] or not 0 < prod(sizes) <= _MOST_DEVICES:
        return None
    return _transposed(range(prod(sizes)), sizes, places)


def _transposed(values: Sequence[int], sizes: Sequence[int], order: Iterable[int]) -> list[int]:
    """Return the elements of an array in row-major order, after its dimensions were put in
    ``order``.
    """
    strides = [prod(sizes[dimension + 1 :]) for dimension in range(len(sizes))]
    offsets = [0]
    for dimension in order:
        steps = range(0, sizes[dimension] * strides[dimension], strides[dimension])
        offsets = [offset + step for offset in offsets for step in steps]
    return [values[offset] for offset in offsets]


def _grouped(devices: Sequence[int], size: int) -> str:
    starts = range(0, len(devices), size)
    groups = (",".join(map(str, devices[start : start + size])) for start in starts)
    return f"{{{','.join(f'{{{group}}}' for group in groups)}}}"


def _mesh_groups(mesh: str, device_ids: str | None, axes: str) -> str | None:
    """Return the groups along some axes of a mesh, or None if the text contradicts
    itself.

    A part of an axis, ``'x':(2)4``, has 4 steps, inside of 2 larger ones.
    """
    names = _MESH_AXIS.findall(mesh)
    sizes = [int(size) for _, size in names]
    chosen: dict[str, list[tuple[int, int]]] = {name: [] for name, _ in names}
    for name, before, steps in _AXIS.findall(axes):
        whole = dict(names).get(name)
        if whole is None:
            return None
        chosen[name].append((int(before or 1), int(steps or whole)))
    if not 0 < prod(sizes) <= _MOST_DEVICES:
        return None
    devices: Sequence[int] | None = range(prod(sizes))
    if device_ids:
        iota = _MESH_IOTA.fullmatch(device_ids)
        listed = re.fullmatch(_NUMBERS, device_ids)
        devices = (
            _iota(_integers(iota[1]), iota[2])
            if iota
            else _integers(device_ids)
            if listed
            else None
        )
    if devices is None or len(devices) != prod(sizes):
        return None
    # Every axis is cut where a chosen part of it begins or ends.
    cut: list[int] = []
    grouped: list[int] = []
    for (name, _), size in zip(names, sizes, strict=True):
        parts = chosen[name]
        bounds = sorted({1, size, *chain.from_iterable((b, b * steps) for b, steps in parts)})
        if any(later % earlier for earlier, later in pairwise(bounds)):
            return None
        for before, steps in parts:
            if bounds.index(before * steps) - bounds.index(before) != (steps > 1):
                return None
            if steps > 1:
                grouped.append(len(cut) + bounds.index(before))
        cut += [later // earlier for earlier, later in pairwise(bounds)]
    if prod(cut) != len(devices) or len({*grouped}) != len(grouped):
        return None
    order = [dimension for dimension in range(len(cut)) if dimension not in grouped]
    return _grouped(
        _transposed(devices, cut, [*order, *grouped]), prod(cut[each] for each in grouped)
    )
