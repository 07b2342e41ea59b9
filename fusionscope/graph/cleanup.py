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
    has_joined = join_equal(
        computation for computation in computations if computation.is_fused or backend != "gpu"
    )
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
        for instruction in computation.post_order():
            if (
                instruction.opcode == "get-tuple-element"
                and instruction.operands[0].opcode == "tuple"
            ):
                index = int(instruction.attributes["index"])
                computation.replace(instruction, instruction.operands[0].operands[index])
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
            for instruction in computation.post_order():
                if (
                    instruction.opcode == "copy"
                    and instruction.shape == instruction.operands[0].shape
                ):
                    computation.replace(instruction, instruction.operands[0])
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
            instruction
            for instruction in computation.instructions
            if not instruction.users
            and not instruction.is_root
            and instruction.opcode != "parameter"
            and not has_side_effect(instruction)
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
        _join_constants(computation) | _join_operations(computation) | join_results(computation)
        for computation in computations
    ]
    return any(has_changed)


def _join_constants(computation: MutableComputation) -> bool:
    firsts: dict[tuple[Shape, str, str | None], MutableInstruction] = {}
    has_changed = False
    for instruction in list(computation.instructions):
        if instruction.opcode == "constant":
            # Of large constants, the dump has no values: only copies of one are surely equal.
            origin = instruction.origin if instruction.literal == "{...}" else None
            first = firsts.setdefault((instruction.shape, instruction.literal, origin), instruction)
            if first is not instruction:
                computation.replace(instruction, first)
                has_changed = True
    return has_changed


def _join_operations(computation: MutableComputation) -> bool:
    groups: dict[Hashable, list[MutableInstruction]] = {}
    has_changed = False
    for instruction in computation.post_order():
        if not instruction.operands or instruction.predecessors or instruction.successors:
            continue
        alike = groups.setdefault(
            (instruction.opcode, instruction.shape, _operands(instruction)), []
        )
        first = next(
            (candidate for candidate in alike if has_equal_contents(candidate, instruction)), None
        )
        if first is None:
            alike.append(instruction)
        elif not has_side_effect(instruction):
            computation.replace_uses(instruction, first)
            remove_unused(instruction)
            has_changed = True
    return has_changed


def _operands(instruction: MutableInstruction) -> tuple[Hashable, ...]:
    """Return a key of the operands. Equal iotas are one operand."""
    keys = [
        (operand.opcode, operand.shape, operand.attributes["iota_dimension"])
        if operand.opcode == "iota"
        else id(operand)
        for operand in instruction.operands
    ]
    if instruction.opcode in _COMMUTATIVE:
        keys.sort(key=str)
    return tuple(keys)
