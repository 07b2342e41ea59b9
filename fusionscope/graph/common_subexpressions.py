"""Joins instructions that compute the same."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from fusionscope.graph.comparison import has_equal_contents
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    remove_unused,
)
from fusionscope.graph.properties import has_side_effect
from fusionscope.hlo.shape import Shape

_COMMUTATIVE = frozenset("add and maximum minimum multiply or xor".split())


def join_after_fusion(graph: MutableModule, backend: str | None) -> bool:
    """Join what the compiler joins after the last fusion pass: on GPUs only instructions inside of
    fusions. Return whether anything changed.
    """
    return join_equal(each for each in graph.post_order() if each.is_fused or backend != "gpu")


def join_equal(computations: Iterable[MutableComputation]) -> bool:
    """Join instructions of one computation that compute the same, in each of ``computations``.
    Return whether anything changed.

    Not joined are results of one fusion, of which the compiler then removes one.

    Source: xla/service/hlo_cse.cc, sensitive to layouts.
    """
    has_changed = [_join_constants(each) | _join_operations(each) for each in computations]
    return any(has_changed)


def _join_constants(computation: MutableComputation) -> bool:
    known: dict[tuple[Shape, str], MutableInstruction] = {}
    has_changed = False
    for each in list(computation.instructions):
        if each.opcode == "constant":
            first = known.setdefault((each.shape, each.literal), each)
            if first is not each:
                computation.replace(each, first)
                has_changed = True
    return has_changed


def _join_operations(computation: MutableComputation) -> bool:
    known: dict[Hashable, list[MutableInstruction]] = {}
    has_changed = False
    for each in computation.post_order():
        if not each.operands or each.predecessors or each.successors:
            continue
        alike = known.setdefault((each.opcode, each.shape, _operands(each)), [])
        first = next((other for other in alike if has_equal_contents(other, each)), None)
        if first is None:
            alike.append(each)
        elif not has_side_effect(each):
            computation.replace_uses(each, first)
            remove_unused(each)
            has_changed = True
    return has_changed


def _operands(instruction: MutableInstruction) -> tuple[Hashable, ...]:
    """Return a key of the operands. Equal iotas are one operand."""
    keys = [
        (each.opcode, each.shape, each.attributes["iota_dimension"])
        if each.opcode == "iota"
        else id(each)
        for each in instruction.operands
    ]
    if instruction.opcode in _COMMUTATIVE:
        keys.sort(key=str)
    return tuple(keys)
