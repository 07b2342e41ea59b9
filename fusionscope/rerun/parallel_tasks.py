"""Replays the CPU pass that partitions large kernels among threads.

Source: xla/service/cpu/parallel_task_assignment.cc and xla/shape_partition.cc; the costs of kernels
are those of xla/service/hlo_cost_analysis.cc.
"""

from __future__ import annotations

import json
import math

from fusionscope.graph.layouts import minor_to_major, sizes
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.graph.properties import is_elementwise, leaves
from fusionscope.graph.work import count_work
from fusionscope.hlo.shape import Shape

_PARTED = frozenset(
    """broadcast concatenate dynamic-slice gather iota pad reduce reduce-window reshape reverse
    slice transpose""".split()
)
_SLICED = frozenset({"dynamic-slice", "slice"})

_IMMEDIATE = 1  # the most elements of a constant that is not read from memory
_LEAST_BYTES = 256 << 10  # per thread, if memory-bound
_LEAST_CYCLES = 100_000  # per thread, if compute-bound
_CYCLES_PER_TRANSCENDENTAL, _CYCLES_PER_BYTE = 2, 10


def assign_tasks(graph: MutableModule, threads: int) -> None:
    """Write the partitions of outer dimensions into kernels, for ``threads`` parallel threads.
    Replaces earlier ones.
    """
    fused = {
        callee
        for instruction in graph.walk()
        if instruction.opcode == "fusion"
        for callee in instruction.called
    }
    for computation in graph.post_order():
        if computation not in fused:
            for instruction in computation.instructions:
                parts = find_parts(instruction, threads)
                if parts or "outer_dimension_partitions" in instruction.attributes_text:
                    _write(instruction, parts)


def _write(instruction: MutableInstruction, parts: list[int]) -> None:
    attributes = dict(instruction.attributes)
    if instruction.opcode == "fusion" and "kind" not in attributes:
        attributes |= {"kind": str(instruction.fusion_kind), "calls": f"%{instruction.fused.name}"}
    config = json.loads(attributes.get("backend_config", "{}"))
    if parts or "fusion_config" in config:
        config["outer_dimension_partitions"] = [str(part) for part in parts]
        attributes["backend_config"] = json.dumps(config, separators=(",", ":"))
    else:
        attributes.pop("backend_config", None)
    instruction.attributes_text = "".join(f", {k}={value}" for k, value in attributes.items())


def find_parts(instruction: MutableInstruction, threads: int) -> list[int]:
    """Return the partitions of the outer dimensions, from the outermost on; empty if there is only
    one in all.
    """
    if not _is_parted(instruction):
        return []
    shape = leaves(instruction.shape)[0]
    parts = _parts_of(shape, _count_tasks(instruction, threads))
    return parts if math.prod(parts) > 1 else []


def _is_parted(instruction: MutableInstruction) -> bool:
    """Source: GetTargetParallelTaskCount."""
    if _may_update_in_place(instruction):
        return False
    if instruction.opcode == "fusion":
        if instruction.shape.is_tuple and not instruction.is_loop_fusion:
            return False
        return instruction.is_loop_fusion or (
            not instruction.is_custom_fusion and is_elementwise(instruction)
        )
    if instruction.shape.is_tuple or instruction.opcode in ("constant", "parameter"):
        return False
    return instruction.opcode in _PARTED or is_elementwise(instruction)


def _may_update_in_place(instruction: MutableInstruction) -> bool:
    """Source: xla/service/llvm_ir/dynamic_update_slice_util.cc."""
    if instruction.opcode == "dynamic-update-slice":
        return True
    if not instruction.is_loop_fusion:
        return False
    root = instruction.fused.root
    roots = root.operands if root.opcode == "tuple" else [root]
    for update in roots:
        while update.opcode == "bitcast":
            (update,) = update.operands
        if update.opcode != "dynamic-update-slice":
            return False
        target = update.operands[0]
        while target.opcode == "bitcast":
            (target,) = target.operands
        if target.opcode != "parameter":
            return False
    return True


def _count_tasks(instruction: MutableInstruction, threads: int) -> int:
    """Source: DefaultCostModel."""
    size = max(1, _bytes(instruction))
    flops, transcendentals = count_work(instruction)
    if flops / size <= 1.0:
        return min(threads, math.ceil(math.sqrt(threads)), max(1, size // _LEAST_BYTES))
    cycles = flops + _CYCLES_PER_TRANSCENDENTAL * transcendentals + _CYCLES_PER_BYTE * size
    return min(threads, max(1, int(cycles) // _LEAST_CYCLES))


def _bytes(instruction: MutableInstruction) -> int:
    """Return the bytes read and written."""
    if instruction.opcode != "fusion":
        if instruction.opcode in _SLICED | {"gather", "broadcast"}:
            first = instruction.shape.byte_size
            later_operands = instruction.operands[1:]
        else:
            first = 0
            later_operands = instruction.operands
        return (
            instruction.shape.byte_size
            + first
            + sum(operand.shape.byte_size for operand in later_operands)
        )
    fused = instruction.fused
    outputs = fused.root.operands if fused.root.opcode == "tuple" else [fused.root]
    bytes_written = sum(
        output.operands[1].shape.byte_size
        if output.opcode == "dynamic-update-slice"
        else output.shape.byte_size
        for output in outputs
    )
    constants = sum(
        instruction.shape.byte_size
        for instruction in fused.instructions
        if instruction.opcode == "constant" and instruction.shape.element_count > _IMMEDIATE
    )
    return bytes_written + constants + sum(_read(parameter) for parameter in fused.parameters)


def _read(parameter: MutableInstruction) -> int:
    """Source: FusionParameterReadBytes."""
    total = whole = 0
    for user in parameter.users:
        is_first = user.operands[0] is parameter
        if user.opcode in _SLICED and is_first:
            total += user.shape.byte_size
        elif not (user.opcode == "dynamic-update-slice" and is_first):
            whole = parameter.shape.byte_size
    return total + whole


def _parts_of(shape: Shape, target: int) -> list[int]:
    """Source: ShapePartitionAssigner::Run."""
    outer: list[int] = []
    for dimension in reversed(minor_to_major(shape)):
        outer.append(sizes(shape)[dimension])
        if math.prod(outer) >= target:
            break
    if not outer:
        return []
    target = min(math.prod(outer), target)
    per_dimension = int(target ** (1.0 / len(outer)))
    parts = [min(size, per_dimension) for size in outer]
    if math.prod(parts) < target:
        for index, size in enumerate(outer):
            other_parts = math.prod(parts) // parts[index]
            parts[index] = max(parts[index], min(size, target // other_parts))
    return parts
