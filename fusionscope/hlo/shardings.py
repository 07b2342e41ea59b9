"""Shardings in one notation: the tiles and their devices, whatever the text says them with.

The compiler prints the same sharding as a list of devices (``{devices=[2,2]0,2,1,3}``), as an iota
(``{devices=[2,2]<=[2,2]T(1,0)}``), or by the axes of a mesh
(``{mesh['x'=2,'y'=2], [{'y'}, {'x'}]}``). Source: XLA's ``xla/hlo/ir/hlo_sharding.cc``,
``named_sharding.cc``, and ``HloParserImpl::ParseSharding``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from fusionscope.hlo.devices import AxisPart, cut_axes, iota, transposed
from fusionscope.hlo.text import STRING, strip_comments

_TOKEN = re.compile(rf"\s+|({STRING}|<=|[\w.\-]+|.)", re.DOTALL)
_MESHES = frozenset({"mesh", "maximal_mesh", "single_device"})
_WHOLE = frozenset({"replicated", "manual", "unknown", "unreduced"})
# The order in which the compiler sorts the kinds of subgroups.
_SUBGROUPS = ("maximal", "manual", "unreduced", "replicated")
_REDUCTION = "sdy::reduction_op"  # the op_type of metadata that name how to reduce
_DEFAULT_REDUCTION = "sum"


class _Unknown(Exception):
    """The text has a notation that is not known here."""


@functools.lru_cache(maxsize=1 << 12)
def normal_sharding(text: str) -> str:
    """Return a sharding with all devices listed: axes of a mesh become the tiles that they mean,
    subgroups are sorted and merged. Of its metadata only the reduction remains, unless it is the
    default, a sum. Return an unknown notation as it is.
    """
    tokens = [token for token in _TOKEN.findall(strip_comments(text)) if token]
    reader = _Reader(tokens)
    try:
        sharding = reader.sharding()
    except (_Unknown, ValueError):
        return text
    return sharding if reader.is_at_end else text


def tuple_shardings(text: str) -> tuple[str, ...]:
    """Return the shardings of the elements of a tuple; nothing for an array."""
    if not text.startswith("{{"):
        return ()
    elements, depth, start = [], 0, 1
    for place, sign in enumerate(text[1:-1], 1):
        depth += (sign == "{") - (sign == "}")
        if sign == "," and not depth:
            elements.append(text[start:place].strip())
            start = place + 1
    return (*elements, text[start:-1].strip())


@dataclass(slots=True)
class _Tiles:
    """An assignment of devices to tiles; the last dimensions are those of ``subgroups``."""

    sizes: list[int]
    devices: Sequence[int]
    subgroups: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rank = len(self.sizes) - len(self.subgroups)
        data = self.sizes[:rank]
        if self.subgroups and len({*self.subgroups}) == 1 and prod(data) == 1:
            return self.subgroups[0]
        order = [*range(rank)]
        merged: dict[str, int] = {}
        for kind in _SUBGROUPS:
            places = [
                rank + index
                for index, subgroup in enumerate(self.subgroups)
                if subgroup == kind and self.sizes[rank + index] > 1
            ]
            if places:
                order += places
                merged[kind] = prod(self.sizes[place] for place in places)
        if prod(data) == 1 and len(merged) == 1:
            return next(iter(merged))
        order += [place for place in range(rank, len(self.sizes)) if self.sizes[place] == 1]
        devices = transposed(self.devices, self.sizes, order)
        if (copies := merged.get("replicated")) is not None:
            starts = range(0, len(devices), copies)
            devices = [device for at in starts for device in sorted(devices[at : at + copies])]
        sizes = ",".join(map(str, [*data, *merged.values()]))
        kinds = f" last_tile_dims={{{','.join(merged)}}}" if merged else ""
        return f"devices=[{sizes}]{','.join(map(str, devices))}{kinds}"


@dataclass(slots=True)
class _Reader:
    tokens: list[str]
    place: int = 0
    reduction: str = _DEFAULT_REDUCTION
    group: str = ""

    @property
    def is_at_end(self) -> bool:
        return self.place == len(self.tokens)

    def peek(self) -> str:
        return self.tokens[self.place] if not self.is_at_end else ""

    def next(self) -> str:
        token = self.peek()
        self.place += 1
        return token

    def take(self, *tokens: str) -> None:
        for token in tokens:
            if self.next() != token:
                raise _Unknown

    def skip(self, token: str) -> bool:
        is_there = self.peek() == token
        self.place += is_there
        return is_there

    def items(self, opening: str, closing: str) -> Iterator[None]:
        """Step through a list; the caller reads each item."""
        self.take(opening)
        while not self.skip(closing):
            yield
            if not self.skip(",") and self.peek() != closing:
                raise _Unknown

    def sharding(self) -> str:
        if self.tokens[:2] == ["{", "{"]:
            parts = [self.single() for _ in self.items("{", "}")]
            return f"{{{','.join(parts)}}}"
        if self.tokens == ["{", "}"]:
            self.place = 2
            return "{}"
        return self.single()

    def single(self) -> str:
        self.reduction, self.group = _DEFAULT_REDUCTION, ""
        self.take("{")
        of_mesh = self.peek() in _MESHES
        text = self.named() if of_mesh else self.tiled()
        self.take("}")
        reduction = f" reduction={self.reduction}" if self.reduction != _DEFAULT_REDUCTION else ""
        return f"{{{text}{self.group}{reduction}}}"

    def tiled(self) -> str:
        text = ""
        tiles: _Tiles | None = None
        subgroups: list[str] = []
        while self.peek() not in ("}", ""):
            word = self.next()
            if word in _WHOLE:
                text = word
                if self.skip("="):
                    self.reduction = self.next()
            elif word == "device":
                self.take("=")
                text = f"maximal device={int(self.next())}"
            elif word == "devices":
                self.take("=")
                tiles = self.tiles()
            elif word == "last_tile_dim_replicate":
                subgroups = ["replicated"]
            elif word == "last_tile_dims":
                self.take("=")
                subgroups = [self.next() for _ in self.items("{", "}")]
            elif word in ("shard_as", "shard_like"):
                self.group = f" {word} {int(self.next())}"
            elif word == "metadata":
                self.metadata()
            elif word not in ("maximal", ","):
                raise _Unknown
        if tiles is None:
            if not text:
                raise _Unknown
            return text
        if text or not {*subgroups} <= {*_SUBGROUPS} or len(subgroups) > len(tiles.sizes):
            raise _Unknown
        tiles.subgroups = subgroups
        return str(tiles)

    def integers(self, opening: str, closing: str) -> list[int]:
        return [int(self.next()) for _ in self.items(opening, closing)]

    def tiles(self) -> _Tiles:
        sizes = self.integers("[", "]")
        if self.skip("<="):
            devices: Sequence[int] = self.iota()
        else:
            devices = [int(self.next())]
            while self.skip(","):
                devices.append(int(self.next()))
        if min(sizes, default=0) < 1 or len(devices) != prod(sizes):
            raise _Unknown
        return _Tiles(sizes, devices)

    def iota(self) -> Sequence[int]:
        sizes = self.integers("[", "]")
        order = self.integers("(", ")") if self.skip("T") else [*range(len(sizes))]
        devices = iota(sizes, order)
        if devices is None:
            raise _Unknown
        return devices

    def metadata(self) -> None:
        """Read metadata, and the reduction in them."""
        self.take("=")
        depth = 0
        fields: dict[str, str] = {}
        while True:
            token = self.next()
            if token == "{":
                depth += 1
                fields = {}
            elif token == "}":
                depth -= 1
                if fields.get("op_type") == _REDUCTION:
                    name = fields.get("op_name", "").lower()
                    self.reduction = name if name in ("max", "min") else _DEFAULT_REDUCTION
                fields = {}
                if not depth:
                    return
            elif not token:
                raise _Unknown
            elif self.skip("="):
                if self.peek() == "{":
                    continue
                fields[token] = self.next().strip("\"'")

    def named(self) -> str:
        """Read a sharding by the axes of a mesh, and return what it means without one."""
        if self.next() != "mesh":
            self.take("[", "device_id", "=")
            device = int(self.next())
            self.take("]")
            if self.skip(","):
                self.take("metadata")
                self.metadata()
            return f"maximal device={device}"
        names: dict[str, int] = {}
        for _ in self.items("[", "]"):
            name = self.next().strip("'\"")
            self.take("=")
            names[name] = int(self.next())
        self.skip(",")
        devices: Sequence[int] | None = None
        if self.skip("device_ids"):
            self.take("=", "(")
            if self.peek() == "[":
                devices = self.iota()
                self.take(")")
            else:
                self.place -= 1
                devices = self.integers("(", ")")
            self.skip(",")
        if devices is None:
            devices = iota([*names.values()], None)
        if devices is None or len(devices) != prod(names.values()):
            raise _Unknown
        return self.axes(names, devices)

    def axes(self, names: dict[str, int], devices: Sequence[int]) -> str:
        """Read which axes are for which dimensions and subgroups."""
        dimensions: list[list[AxisPart]] = []
        unclosed: list[int] = []
        subgroups: dict[str, list[AxisPart]] = {}
        if self.peek() == "[":
            for _ in self.items("[", "]"):
                axes = self.parts(names)
                if axes and axes[-1] is None:
                    unclosed.append(len(dimensions))
                dimensions.append([axis for axis in axes if axis is not None])
        while self.peek() not in ("}", ""):
            self.skip(",")
            kind = self.next()
            if kind == "metadata":
                self.take("=")
                self.place -= 1
                reduction = self.reduction
                self.metadata()
                self.reduction = reduction
                continue
            if kind not in _WHOLE:
                raise _Unknown
            if self.skip("=") and self.peek() != "{":
                self.reduction = self.next()
            whole: list[AxisPart | None] = [(name, 1, size) for name, size in names.items()]
            axis_parts = self.parts(names) if self.peek() == "{" else whole
            subgroups[kind] = [axis for axis in axis_parts if axis is not None]
        text = _tiles_of_mesh(names, devices, dimensions, subgroups)
        return f"{text} open={{{','.join(map(str, unclosed))}}}" if unclosed else text

    def parts(self, names: dict[str, int]) -> list[AxisPart | None]:
        """Read a list of axes and their parts; None stands for a question mark."""
        parts: list[AxisPart | None] = []
        for _ in self.items("{", "}"):
            name = self.next().strip("'\"")
            if name == "?":
                parts.append(None)
                continue
            if name not in names and name.isdecimal() and int(name) < len(names):
                name = [*names][int(name)]  # the number of an axis
            if name not in names:
                raise _Unknown
            before, steps = 1, names[name]
            if self.skip(":"):
                self.take("(")
                before = int(self.next())
                self.take(")")
                steps = int(self.next())
            parts.append((name, before, steps))
        return parts


def _tiles_of_mesh(
    names: dict[str, int],
    devices: Sequence[int],
    dimensions: list[list[AxisPart]],
    subgroups: dict[str, list[AxisPart]],
) -> str:
    """Return the tiles that axes of a mesh mean. Axes that are not named hold copies."""
    groups = [*dimensions, subgroups.get("manual", []), subgroups.get("unreduced", [])]
    cut = cut_axes(names, [part for group in groups for part in group])
    replicated = cut_axes(names, subgroups.get("replicated", []))
    if cut is None or replicated is None:
        raise _Unknown
    sizes, places = cut
    order = [place for part in places for place in part]
    remaining = [place for place in range(len(sizes)) if place not in order]
    tile_sizes = [prod(steps for _, _, steps in group) for group in groups]
    copies = prod(sizes[place] for place in remaining)
    if prod(tile_sizes) == 1:
        return "replicated"
    return str(
        _Tiles(
            [*tile_sizes, copies],
            transposed(devices, sizes, [*order, *remaining]),
            ["manual", "unreduced", "replicated"],
        )
    )
