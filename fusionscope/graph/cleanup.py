"""The cleanup passes that run after fusion: equal instructions are joined, dead ones removed."""

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
from fusionscope.graph.results import join_results, remove_results
from fusionscope.hlo.shape import Shape

_COMMUTATIVE = frozenset("add and maximum minimum multiply or xor".split())


def clean_up(graph: MutableModule, backend: str | None) -> bool:
    """Do what the compiler does after a fusion pass: join equal instructions, on GPUs only inside
    of fusions, and remove dead ones and results that nothing reads; on CPUs, first read elements of
    tuples where they come from. Return whether anything changed.
    """
    has_changed = backend != "gpu" and _bypass_tuples(graph)
    computations = graph.post_order()
    has_joined = join_equal(each for each in computations if each.is_fused or backend != "gpu")
    has_removed = remove_dead(graph)
    while remove_results(graph):
        has_removed = True
        remove_dead(graph)
    return has_removed or has_joined or has_changed


def _bypass_tuples(graph: MutableModule) -> bool:
    """Replace the elements of tuples that the same computation makes. Return whether there were
    any.

    Source: xla/hlo/transforms/simplifiers/tuple_simplifier.cc.
    """
    has_changed = False
    for computation in graph.post_order():
        for each in computation.post_order():
            if each.opcode == "get-tuple-element" and each.operands[0].opcode == "tuple":
                index = int(each.attributes["index"])
                computation.replace(each, each.operands[0].operands[index])
                has_changed = True
    return has_changed


def remove_copies(graph: MutableModule) -> bool:
    """Remove copies outside of kernels that have the layout of their operand. The CPU compiler does
    so after fusion, before it inserts the copies that updates in place need. Return whether there
    were any.

    Source: xla/hlo/transforms/simplifiers/algebraic_simplifier.cc, HandleCopy.
    """
    has_changed = False
    for computation in graph.post_order():
        if not computation.is_fused:
            for each in computation.post_order():
                if each.opcode == "copy" and each.shape == each.operands[0].shape:
                    computation.replace(each, each.operands[0])
                    has_changed = True
    return has_changed


def remove_dead(graph: MutableModule) -> bool:
    """Remove all instructions that no result depends on, the last added first. Return whether there
    were any.

    Source: xla/hlo/transforms/simplifiers/hlo_dce.cc.
    """
    has_changed = False
    for computation in graph.post_order():
        dead = [
            each
            for each in computation.instructions
            if not each.users
            and not each.is_root
            and each.opcode != "parameter"
            and not has_side_effect(each)
        ]
        for instruction in reversed(dead):
            remove_unused(instruction)
        has_changed |= bool(dead)
    return has_changed


def join_equal(computations: Iterable[MutableComputation]) -> bool:
    """Join instructions that compute the same, in each of ``computations``, callees before callers.
    Return whether anything changed.

    Source: xla/service/hlo_cse.cc, sensitive to layouts.
    """
    has_changed = [
        _join_constants(each) | _join_operations(each) | join_results(each) for each in computations
    ]
    return any(has_changed)


def _join_constants(computation: MutableComputation) -> bool:
    known: dict[tuple[Shape, str, str | None], MutableInstruction] = {}
    has_changed = False
    for each in list(computation.instructions):
        if each.opcode == "constant":
            # Of large constants, the dump has no values: only copies of one are surely equal.
            origin = each.origin if each.literal == "{...}" else None
            first = known.setdefault((each.shape, each.literal, origin), each)
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
