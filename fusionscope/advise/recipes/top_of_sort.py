"""A sort whose first or last elements alone are read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, NamedTuple

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import array, build, put, text_of
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.advise.recipes.sorting import are_positions, is_ascending
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.graph.properties import slice_ranges

_SHARE = 8  # at most an eighth of the elements


class TopOfSort(Recipe):
    __slots__ = ()
    id: ClassVar = "top-of-sort"
    title: ClassVar = "`top_k` instead of a sort if only one end is read"
    what: ClassVar = (
        "Values are sorted along the last dimension, alone or with their positions (`argsort`), "
        "and only the k largest or smallest are read, at most an eighth. `top_k` finds only "
        "these."
    )
    why: ClassVar = (
        "A sort moves every element many times, and is a kernel or a library call of its own. "
        "`top_k` reads each element once."
    )
    backfires: ClassVar = (
        "If k is large. Equal elements may come in another order, so `argsort` may return other "
        "positions; a sort puts NaNs last, `top_k` first."
    )
    backends: ClassVar = frozenset({"cpu", "gpu", "tpu"})
    example: ClassVar = Example(
        ("f32[256,4096]",),
        """
def program(values):
    return jnp.argsort(values, axis=1)[:, -8:]
""",
        """
def program(values):
    largest, positions = lax.top_k(values, 8)
    return positions[:, ::-1]
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            top = _top(instruction) if instruction.opcode == "sort" else None
            if top is not None:
                yield Site(instruction, partial(_rewrite, instruction, top))


class _Top(NamedTuple):
    """``k`` elements are read from one end of a sort; ``slices`` read values or positions."""

    k: int
    is_largest: bool
    slices: list[MutableInstruction]


def _top(sort: MutableInstruction) -> _Top | None:
    values = sort.operands[0]
    (dimension,) = sort.attribute("dimensions")
    ascending = is_ascending(sort)
    if (
        ascending is None
        or dimension != values.shape.rank - 1
        or len(sort.operands) > 2
        or (len(sort.operands) == 2 and not are_positions(sort.operands[1], dimension))
        or sort.is_root
    ):
        return None
    slices = _readers(sort)
    if not slices or any(part.opcode != "slice" for part in slices):
        return None
    size = values.shape.dimensions[dimension] or 1
    ranges = [_range(part, dimension) for part in slices]
    if None in ranges:
        return None
    spans = [span for span in ranges if span is not None]
    if any(span.step != 1 for span in spans):
        return None
    at_end = all(span.stop == size for span in spans)
    at_start = all(span.start == 0 for span in spans)
    count = max(len(span) for span in spans)
    if at_end == at_start or count * _SHARE > size:
        return None
    return _Top(count, ascending == at_end, slices)


def _readers(sort: MutableInstruction) -> list[MutableInstruction]:
    """Yield the readers of the results of a sort; elements of its tuple are transparent."""
    if len(sort.operands) == 1:
        return list(sort.users)
    return [user for element in sort.users for user in element.users]


def _range(slice_: MutableInstruction, dimension: int) -> range | None:
    """Return the positions that are read, None if it also cuts another dimension."""
    ranges = slice_ranges(slice_)
    sizes = slice_.operands[0].shape.dimensions
    whole = all(len(span) == sizes[n] for n, span in enumerate(ranges) if n != dimension)
    return ranges[dimension] if whole else None


def _rewrite(sort: MutableInstruction, top: _Top) -> None:
    values = sort.operands[0]
    (dimension,) = sort.attribute("dimensions")
    kind, sizes = values.shape.element_type, values.shape.dimensions[:dimension]
    kinds = (kind, "s32")
    both = ", ".join(array(kind, (*sizes, top.k)) for kind in kinds)
    top_values = build(
        sort,
        f"ROOT found = ({both}) topk(%p0), k={top.k}, largest={str(top.is_largest).lower()}",
        [values],
    )
    # The best come first, which is the order of the sort at one of its ends.
    is_turned = top.is_largest == bool(is_ascending(sort))
    for part in top.slices:
        element = part.operands[0]
        number = 0 if element is sort else element.attribute("index")
        length = part.shape.dimensions[dimension] or 1
        whole = array(kinds[number], (*sizes, top.k))
        some = array(kinds[number], (*sizes, length))
        cuts = ", ".join(f"[0:{size}]" for size in (*sizes, length))
        turn = f"reverse(some), dimensions={{{dimension}}}"
        put(
            part,
            f"""
            all = {whole} get-tuple-element(%p0), index={number}
            some = {some} slice(all), slice={{{cuts}}}
            {f"ordered = {some} {turn}" if is_turned else ""}
            ROOT result = {text_of(part)} convert({"ordered" if is_turned else "some"})
            """,
            [top_values],
        )
