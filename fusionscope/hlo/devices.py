"""Writes out the devices of replica groups and meshes.

The compiler prints the same list in several notations: all numbers (``{{0,2},{1,3}}``), a
transposed iota (``[2,2]<=[2,2]T(1,0)``), or axes of a mesh (``mesh['x'=2,'y'=2] {'x'}``). Source:
XLA's ``xla/hlo/ir/replica_group.cc``, ``tile_assignment.cc`` and ``mesh_and_axis.cc``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from math import prod
from typing import TypeAlias

# A part of an axis: its name, the steps of the larger parts before it, and its own steps.
AxisPart: TypeAlias = "tuple[str, int, int]"

_MOST_DEVICES = 1 << 20  # no machine has more: a longer list is left alone
_NUMBERS = r"\d{1,9}(?:,\d{1,9})*"
_IOTA = re.compile(rf"\[({_NUMBERS})\]<=\[({_NUMBERS})\](?:T\(({_NUMBERS})\))?")
_MESH = re.compile(r"mesh\[([^\[\]]*)\](?:,device_ids=\(([^()]*(?:\([^()]*\))?)\))?\{([^{}]*)\}")
_MESH_AXIS = re.compile(r"'([^']*)'=(\d{1,9})")
_AXIS = re.compile(r"'([^']*)'(?::\((\d{1,9})\)(\d{1,9}))?")
_MESH_IOTA = re.compile(rf"\[({_NUMBERS})\]T\(({_NUMBERS})\)")


def explicit_groups(text: str) -> str:
    """Return replica groups (without spaces) as ``{{0,2},{1,3}}``, or unchanged if the notation is
    unknown.
    """
    if array := _IOTA.fullmatch(text):
        sizes = _integers(array[1])
        devices = iota(_integers(array[2]), _integers(array[3]) if array[3] else None)
        if devices is not None and len(sizes) == 2 and prod(sizes) == len(devices):
            return _grouped(devices, sizes[1])
    elif mesh := _MESH.fullmatch(text):
        return _mesh_groups(mesh[1], mesh[2], mesh[3]) or text
    return text


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def iota(sizes: Sequence[int], order: Sequence[int] | None) -> list[int] | None:
    """Return 0, 1, 2, ... in an array of these sizes with its dimensions permuted; None as the
    order keeps it. Return None if ``order`` is not a permutation, or the array is larger than any
    machine.
    """
    places = [*range(len(sizes))] if order is None else order
    if sorted(places) != [*range(len(sizes))] or not 0 < prod(sizes) <= _MOST_DEVICES:
        return None
    return transposed(range(prod(sizes)), sizes, places)


def transposed(values: Sequence[int], sizes: Sequence[int], order: Iterable[int]) -> list[int]:
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
    names = {name: int(size) for name, size in _MESH_AXIS.findall(mesh)}
    parts: list[AxisPart] = []
    for name, before, steps in _AXIS.findall(axes):
        whole = names.get(name)
        if whole is None:
            return None
        parts.append((name, int(before or 1), int(steps or whole)))
    sizes = [*names.values()]
    devices = iota(sizes, None)
    if device_ids and (array := _MESH_IOTA.fullmatch(device_ids)):
        devices = iota(_integers(array[1]), _integers(array[2]))
    elif device_ids:
        devices = _integers(device_ids) if re.fullmatch(_NUMBERS, device_ids) else None
    cut = cut_axes(names, parts)
    if devices is None or cut is None or len(devices) != prod(sizes):
        return None
    cut_sizes, places = cut
    grouped = [place for part in places for place in part]
    order = [place for place in range(len(cut_sizes)) if place not in grouped]
    return _grouped(
        transposed(devices, cut_sizes, [*order, *grouped]),
        prod(cut_sizes[place] for place in grouped),
    )


def cut_axes(
    names: Mapping[str, int], parts: Sequence[AxisPart]
) -> tuple[list[int], list[list[int]]] | None:
    """Cut the axes of a mesh, ``names`` with their sizes, where a part begins or ends. Return the
    sizes of all pieces in the order of the axes, and for each part the places of its pieces among
    them. Return None if the parts contradict each other.
    """
    sizes: list[int] = []
    bounds: dict[str, list[int]] = {}
    first: dict[str, int] = {}
    for name, size in names.items():
        ends = chain.from_iterable((b, b * steps) for axis, b, steps in parts if axis == name)
        bounds[name] = sorted({1, size, *ends})
        if any(not earlier or later % earlier for earlier, later in pairwise(bounds[name])):
            return None
        first[name] = len(sizes)
        sizes += [later // earlier for earlier, later in pairwise(bounds[name])]
    places: list[list[int]] = []
    for name, before, steps in parts:
        start, end = (bounds[name].index(bound) for bound in (before, before * steps))
        places.append([first[name] + place for place in range(start, end)])
    flat = [place for part in places for place in part]
    if len({*flat}) != len(flat) or prod(sizes) != prod(names.values()):
        return None
    return sizes, places
