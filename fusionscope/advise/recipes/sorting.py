"""Shared helpers of recipes for sorts."""

from __future__ import annotations

from fusionscope.graph.fusing import clone_into
from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.hlo.search import reachable
from fusionscope.hlo.shape import Shape

# What JAX compares besides the keys: zeros of both signs are equal, and so are all NaNs.
_KEEPS_ORDER = frozenset({"compare", "constant", "parameter", "select"})


def is_ascending(sort: MutableInstruction) -> bool | None:
    """Return whether a sort is in ascending order of its first operand (false: descending); None if
    it compares something else.
    """
    (comparator,) = sort.called
    root = comparator.root
    if root.opcode != "compare" or len(comparator.parameters) < 2:
        return None
    direction = root.attributes.get("direction")
    first, second = comparator.parameters[:2]
    if [_reads(operand) for operand in root.operands] != [{first}, {second}]:
        return None
    return {"LT": True, "GT": False}.get(direction or "")


def are_positions(value: MutableInstruction, dimension: int) -> bool:
    """Return whether each element is its own position along ``dimension``."""
    if value.opcode == "broadcast" and value.attribute("dimensions") == (dimension,):
        return are_positions(value.operands[0], 0)
    return value.opcode == "iota" and value.attribute("iota_dimension") == dimension


def compare_keys(sort: MutableInstruction, payload: Shape) -> MutableComputation:
    """Return the comparator of a sort of the same keys with one ``payload``, a scalar type.

    ``is_ascending`` has to recognise the comparison of the sort.
    """
    (original,) = sort.called
    comparator = sort.computation.module.add_computation(original.name)
    values: dict[MutableInstruction, MutableInstruction] = {}
    for instruction in original.post_order():
        if instruction.opcode != "parameter" or instruction.parameter_number < 2:
            operands = [values[operand] for operand in instruction.operands]
            values[instruction] = clone_into(instruction, comparator, operands)
    comparator.parameters.sort(key=lambda parameter: parameter.parameter_number)
    comparator.root = values[original.root]
    for _ in range(2):
        comparator.make_parameter(payload)
    return comparator


def _reads(value: MutableInstruction) -> set[MutableInstruction] | None:
    """Return the parameters that ``value`` is one of, up to operations that keep the order; None if
    it is something else.
    """
    values = [
        *reachable([value], lambda step: step.operands if step.opcode in _KEEPS_ORDER else ())
    ]
    if any(step.opcode not in _KEEPS_ORDER for step in values):
        return None
    return {step for step in values if step.opcode == "parameter"}
