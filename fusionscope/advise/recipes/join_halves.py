"""Arrays whose parts are interleaved, such as pairs that were rotated, before a product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import dot_dimensions, integers, put, scalar, text_of
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo.shape import Shape

_OF_ONE = frozenset({"convert", "copy", "negate"})
_SCALING = frozenset({"divide", "multiply"})


class JoinHalves(Recipe):
    __slots__ = ()
    id: ClassVar = "join-halves"
    title: ClassVar = "halves joined instead of interleaved before a product"
    what: ClassVar = (
        "Both operands of a matrix product have pairs along the contracted dimension that were "
        "computed apart, such as by a rotary embedding (`x[..., 0::2]`, `x[..., 1::2]`), and "
        "interleaved by `stack` and `reshape`. The order along that dimension does not matter, as "
        "long as it is the same in both: `concatenate` joins the halves."
    )
    why: ClassVar = (
        "On a TPU the dimension is along the lanes of a tile. Interleaving moves each element to "
        "another lane, by kernels of their own; joined halves are whole lanes."
    )
    backfires: ClassVar = (
        "The order of sums changes, and so may the last digits. Where one of the arrays is also a "
        "result, or read elsewhere, such as keys that are cached, the recipe does not fit."
    )
    tolerance: ClassVar = 1e-5
    backends: ClassVar = frozenset({"tpu"})
    example: ClassVar = Example(
        ("f32[8,512,128]", "f32[8,512,128]", "f32[512,64]"),
        """
def program(queries, keys, angles):
    def rotated(x):
        one, two = x[..., 0::2], x[..., 1::2]
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        parts = [one * cos - two * sin, one * sin + two * cos]
        return jnp.stack(parts, -1).reshape(x.shape)

    return jnp.einsum("hqd,hkd->hqk", rotated(queries), rotated(keys))
""",
        """
def program(queries, keys, angles):
    def rotated(x):
        one, two = x[..., 0::2], x[..., 1::2]
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        return jnp.concatenate([one * cos - two * sin, one * sin + two * cos], -1)

    return jnp.einsum("hqd,hkd->hqk", rotated(queries), rotated(keys))
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for dot in list(graph.walk()):
            if dot.opcode != "dot" or len(dot.operands) != 2 or len(set(dot.operands)) != 2:
                continue
            dimensions = dot_dimensions(dot)
            left, right = dot.operands
            pairs = zip(dimensions.left_contracting, dimensions.right_contracting, strict=False)
            for left_place, right_place in pairs:
                sides = _interleaved(left, left_place), _interleaved(right, right_place)
                first, second = sides
                if first is not None and second is not None and first.count == second.count:
                    yield Site(first.value, partial(_rewrite, first, second), also=(second.value,))


@dataclass(frozen=True, slots=True)
class _Interleaved:
    """``value`` has the elements of ``parts``, arrays with a last dimension of one element, in turn
    along dimension ``place``.
    """

    value: MutableInstruction
    parts: tuple[MutableInstruction, ...]
    place: int

    @property
    def count(self) -> int:
        return len(self.parts)


def _interleaved(value: MutableInstruction, place: int) -> _Interleaved | None:
    """Return where the elements of ``value`` along dimension ``place`` are interleaved, if nothing
    else reads them from there on.
    """
    while len(value.users) == 1 and not value.is_root:
        if value.opcode == "reshape":
            (operand,) = value.operands
            if _interleaves(value, place):
                return _Interleaved(value, tuple(operand.operands), place)
            place = _place_before(value.shape, operand.shape, place)
            if place < 0:
                return None
            value = operand
        elif value.opcode == "transpose":
            place = value.attribute("dimensions")[place]
            (value,) = value.operands
        elif value.opcode in _OF_ONE:
            (value,) = value.operands
        elif value.opcode in _SCALING and scalar(value.operands[1]) is not None:
            value = value.operands[0]
        else:
            return None
    return None


def _interleaves(reshape: MutableInstruction, place: int) -> bool:
    """Return whether it makes one dimension of an array and of the parts that are joined in it."""
    (joined,) = reshape.operands
    sizes = reshape.shape.dimensions
    if joined.opcode != "concatenate" or len(joined.users) != 1:
        return False
    after = place + 1
    return (
        tuple(joined.attribute("dimensions")) == (after,)
        and joined.shape.rank == len(sizes) + 1
        and joined.shape.dimensions[:place] == sizes[:place]
        and joined.shape.dimensions[after + 1 :] == sizes[after:]
        and all(part.shape.dimensions[after] == 1 for part in joined.operands)
    )


def _place_before(result: Shape, operand: Shape, place: int) -> int:
    """Return the dimension of the operand of a reshape that is ``place`` of its result, if it only
    adds or drops dimensions of one element; otherwise -1.
    """
    old = [number for number, size in enumerate(operand.dimensions) if size != 1]
    new = [number for number, size in enumerate(result.dimensions) if size != 1]
    sizes = [operand.dimensions[number] for number in old]
    if place not in new or sizes != [result.dimensions[number] for number in new]:
        return -1
    return old[new.index(place)]


def _rewrite(*sides: _Interleaved) -> None:
    for side in sides:
        value = side.value
        sizes = list(value.shape.dimensions)
        sizes[side.place] = (sizes[side.place] or 0) // side.count
        row = Shape(value.shape.element_type, tuple(sizes))
        names = [f"half{number}" for number in range(side.count)]
        lines = [f"{name} = {row} reshape(%p{number})" for number, name in enumerate(names)]
        dimensions = integers([side.place])
        lines.append(
            f"ROOT joined = {text_of(value)} concatenate({', '.join(names)}), "
            f"dimensions={dimensions}"
        )
        put(value, "\n".join(lines), side.parts)
