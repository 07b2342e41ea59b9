"""The results of fusions that the cleanup after fusion removes: equal ones, and unused ones."""

from __future__ import annotations

from fusionscope.graph.fusing import add_element
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    remove_unused,
)
from fusionscope.graph.properties import has_side_effect
from fusionscope.hlo.shape import TUPLE, Shape


def join_results(computation: MutableComputation) -> bool:
    """Let everything read the first of equal results, if ``computation`` is that of a fusion.
    Return whether anything changed.

    Source: xla/service/hlo_cse.cc.
    """
    has_changed = False
    if not computation.is_fused or computation.root.opcode != "tuple":
        return False
    results = computation.root.operands
    for fusion in list(computation.callers):
        for element in _elements(fusion):
            index = _index(element)
            first = results.index(results[index])
            if first != index:
                fusion.computation.replace(element, add_element(fusion, first))
                has_changed = True
    return has_changed


def remove_results(graph: MutableModule) -> bool:
    """Remove the results of fusions that nothing reads. Return whether there were any.

    Source: xla/hlo/transforms/simplifiers/hlo_dce.cc.
    """
    has_changed = False
    for fusion in list(graph.walk()):
        if fusion.is_multi_output and _has_free_results(fusion):
            results = fusion.fused.root.operands
            read = {_index(element) for element in fusion.users}
            read.update(index for index, result in enumerate(results) if has_side_effect(result))
            if len(read) < len(results):
                _keep(fusion, sorted(read))
                has_changed = True
    return has_changed


def _has_free_results(fusion: MutableInstruction) -> bool:
    """Return whether results may go, and others take their numbers."""
    return (
        len(_elements(fusion)) == len(fusion.users) > 0
        and not fusion.is_root
        and not fusion.is_custom_fusion
        and not (fusion.predecessors or fusion.successors)
        and "output_to_operand_aliasing" not in fusion.attributes
        and "sharding" not in fusion.fused.root.attributes
    )


def _keep(fusion: MutableInstruction, indices: list[int]) -> None:
    """Keep the results of ``fusion`` at ``indices``."""
    computation, fused, root = fusion.computation, fusion.fused, fusion.fused.root
    elements = [(element, indices.index(_index(element))) for element in _elements(fusion)]
    results = [root.operands[index] for index in indices]
    if len(results) == 1:
        fusion.shape, fused.root = results[0].shape, results[0]
    else:
        fusion.shape = Shape(TUPLE, elements=tuple(result.shape for result in results))
        fused.root = fused.make("tuple", fusion.shape, results)
    remove_unused(root)
    for element, index in elements:
        computation.replace(element, add_element(fusion, index) if len(results) > 1 else fusion)
    _remove_parameters(fusion)


def _remove_parameters(fusion: MutableInstruction) -> None:
    """Remove the operands that ``fusion`` does not read any more."""
    fused = fusion.fused
    for slot, parameter in reversed(list(enumerate(fused.parameters))):
        if not parameter.users and not parameter.is_root:
            fused.remove(parameter)
            fusion.operands.pop(slot).users.drop(fusion)
    for slot, parameter in enumerate(fused.parameters):
        parameter.inside = str(slot)


def _elements(fusion: MutableInstruction) -> list[MutableInstruction]:
    return [user for user in fusion.users if user.opcode == "get-tuple-element"]


def _index(element: MutableInstruction) -> int:
    return int(element.attributes["index"])
