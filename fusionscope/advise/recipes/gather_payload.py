"""A sort that moves several arrays along with its keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import build, calling, text_of
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.advise.recipes.sorting import compare_keys, is_ascending
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_and_prune
from fusionscope.hlo.shape import TUPLE, Shape

_FEWEST = 2  # arrays beside the keys


class GatherPayload(Recipe):
    __slots__ = ()
    id: ClassVar = "gather-payload"
    title: ClassVar = "keys sorted with their positions, and other arrays gathered"
    what: ClassVar = (
        "A sort of one-dimensional arrays moves two or more besides the keys. The keys are sorted "
        "with only their positions, by which each of the other arrays is gathered."
    )
    why: ClassVar = "A sort moves all its arrays in every step, a gather moves each once."
    backfires: ClassVar = (
        "With one array besides the keys the time is the same. On a GPU a sort with all of them is "
        "one kernel, and the gathers add kernels."
    )
    backends: ClassVar = frozenset({"cpu"})
    example: ClassVar = Example(
        ("f32[65536]", "f32[65536]", "f32[65536]", "f32[65536]"),
        """
def program(keys, some, others, more):
    return lax.sort((keys, some, others, more), num_keys=1)
""",
        """
def program(keys, some, others, more):
    positions = jnp.arange(keys.size, dtype=jnp.int32)
    sorted_keys, order = lax.sort((keys, positions), num_keys=1)
    return sorted_keys, some[order], others[order], more[order]
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            if (
                instruction.opcode == "sort"
                and len(instruction.operands) > _FEWEST
                and instruction.operands[0].shape.rank == 1
                and is_ascending(instruction) is not None
                and not instruction.is_root
            ):
                yield Site(instruction, partial(_rewrite, instruction))


def _rewrite(sort: MutableInstruction) -> None:
    keys, *payloads = sort.operands
    (size,) = keys.shape.dimensions
    position = Shape("s32")
    positions = build(sort, f"ROOT positions = s32[{size}] iota(), iota_dimension=0", [])
    name = sort.computation.module.instruction_name(sort.name)
    shape = Shape(TUPLE, elements=(keys.shape, positions.shape))
    comparator = compare_keys(sort, position)
    text = calling(sort.attributes_text, sort.called[0], comparator)
    shorter_sort = MutableInstruction(name, "sort", shape, [keys, positions], text)
    shorter_sort.called = [comparator]
    sort.computation.add(shorter_sort)
    elements = [
        build(sort, f"ROOT keys = {text_of(keys)} get-tuple-element(%p0), index=0", [shorter_sort])
    ]
    order = build(
        sort,
        f"""
        order = {text_of(positions)} get-tuple-element(%p0), index=1
        ROOT rows = s32[{size},1] reshape(order)
        """,
        [shorter_sort],
    )
    one_a_row = (
        "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1}"
    )
    elements += [
        build(
            sort, f"ROOT moved = {text_of(payload)} gather(%p0, %p1), {one_a_row}", [payload, order]
        )
        for payload in payloads
    ]
    for user in list(sort.users):
        if user.opcode == "get-tuple-element":
            replace_and_prune(user, elements[user.attribute("index")])
