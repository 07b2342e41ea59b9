"""What recipes for sorts have in common."""

from __future__ import annotations

from fusionscope.graph.fusing import clone_into
from fusionscope.graph.mutable import MutableComputation, MutableInstruction
from fusionscope.hlo.shape import Shape

# What JAX compares beside the keys: zeros of both signs, and what is not a number, are each equal.
_KEEPS_ORDER = frozenset({"compare", "constant", "parameter", "select"})


def is_ascending(sort: MutableInstruction) -> bool | None:
    """Whether a sort puts the smallest of its first operand first (or the largest: false); None
    where it compares something else."""
    (comparator,) = sort.called
    root = comparator.root
    if root.opcode != "compare" or len(comparator.parameters) < 2:
        return None
    direction = root.attributes.get("direction")
    first, second = comparator.parameters[:2]
    if [_reads(each) for each in root.operands] != [{first}, {second}]:
        return None
    return {"LT": True, "GT": False}.get(direction or "")


def are_positions(value: MutableInstruction, dimension: int) -> bool:
    """Whether each element is its own place along ``dimension``."""
    if value.opcode == "broadcast" and value.attribute("dimensions") == (dimension,):
        return are_positions(value.operands[0], 0)
    return value.opcode == "iota" and value.attribute("iota_dimension") == dimension


def compare_keys(sort: MutableInstruction, payload: Shape) -> MutableComputation:
    """The comparator of a sort of the same keys with one ``payload``, a scalar, beside them. The
    sort has to be one of which ``is_ascending`` knows what it compares."""
    (original,) = sort.called
    comparator = sort.computation.module.add_computation(original.name)
    made: dict[MutableInstruction, MutableInstruction] = {}
    for each in original.post_order():
        if each.opcode != "parameter" or each.parameter_number < 2:
            operands = [made[operand] for operand in each.operands]
            made[each] = clone_into(each, comparator, operands)
    comparator.parameters.sort(key=lambda each: each.parameter_number)
    comparator.root = made[original.root]
    for _ in range(2):
        comparator.make_parameter(payload)
    return comparator


def _reads(value: MutableInstruction) -> set[MutableInstruction] | None:
    """The parameters of which ``value`` is one, up to what does not change their order; None where
    it is something else."""
    found: set[MutableInstruction] = set()
    pending, seen = [value], {value}
    while pending:
        each = pending.pop()
        if each.opcode not in _KEEPS_ORDER:
            return None
        if each.opcode == "parameter":
            found.add(each)
        for operand in each.operands:
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return found
