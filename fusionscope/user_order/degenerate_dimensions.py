"""Replays the pass that removes dimensions of size 1 around elementwise operations.

It forms no fusions. But its reshapes, most of which it removes again, leave the users of a value in
an order that no text shows and that later passes depend on. Attributes of new instructions are
omitted, and a broadcast is assumed to become one other. Source:
xla/hlo/transforms/simplifiers/degenerate_dimension_rewriter.cc, hlo_rewrite_utils.cc.
"""

from __future__ import annotations

from dataclasses import replace

from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_and_prune
from fusionscope.graph.properties import is_elementwise
from fusionscope.hlo.shape import Shape

_NOT_TRIVIAL = frozenset("constant copy fusion iota rng".split())
# Operands that are read through a new reshape.
_RESHAPED = frozenset(
    "gather get-tuple-element iota reduce reduce-window rng select-and-scatter".split()
)
_READ = _RESHAPED | {"broadcast", "concatenate", "constant", "reshape"}


def drop_degenerate_dimensions(graph: MutableModule) -> None:
    """Rewrite all instructions outside of fusions."""
    for computation in graph.post_order():
        if computation.is_fused:
            continue
        for instruction in computation.post_order():
            if _is_rewritten(instruction):
                reshape = computation.make(
                    "reshape", instruction.shape, [_without_ones(instruction)]
                )
                replace_and_prune(instruction, reshape)


def _is_rewritten(instruction: MutableInstruction) -> bool:
    """Return whether it is rewritten, as elementwise operands were before if they could be."""
    shape = instruction.shape
    return (
        instruction.parent is not None
        and shape.is_array
        and 1 in shape.dimensions
        and shape.element_count > 1
        and instruction.opcode not in _NOT_TRIVIAL
        and is_elementwise(instruction)
        and all(map(_can_be_read, instruction.operands))
    )


def _can_be_read(operand: MutableInstruction) -> bool:
    if operand.opcode == "get-tuple-element":
        return _goes_through_loop(operand)
    return operand.opcode in _READ


def _goes_through_loop(element: MutableInstruction) -> bool:
    """Return whether it is an element of a loop's state that an iteration leaves unchanged."""
    (state,) = element.operands
    index = element.attribute("index")
    computation = element.computation
    return (
        state.opcode == "parameter"
        and computation is not computation.module.entry
        and any(
            user.opcode == "tuple"
            and index < len(user.operands)
            and user.operands[index] is element
            for user in element.users
        )
    )


def _without_ones(instruction: MutableInstruction) -> MutableInstruction:
    """Source: ReplaceElementwiseGroupSurroundedByReshapesAndBroadcasts."""
    reshaped: dict[MutableInstruction, MutableInstruction] = {}
    operands = []
    for operand in instruction.operands:
        shape = _shape(operand, instruction)
        if operand.opcode == "broadcast":
            operands.append(_broadcast(operand, shape))
        elif (
            operand.opcode == "reshape" and operand.operands[0].shape.dimensions == shape.dimensions
        ):
            operands.append(operand.operands[0])
        else:
            if operand not in reshaped:
                reshaped[operand] = _made(operand, shape)
            operands.append(reshaped[operand])
    make = instruction.computation.make
    return make(instruction.opcode, _shape(instruction, instruction), operands)


def _shape(instruction: MutableInstruction, like: MutableInstruction) -> Shape:
    """Return its elements in the dimensions of ``like`` with more than one element."""
    dimensions = tuple(size for size in like.shape.dimensions if size != 1)
    return replace(instruction.shape, dimensions=dimensions, dynamic=(), layout=None)


def _broadcast(operand: MutableInstruction, shape: Shape) -> MutableInstruction:
    (source,) = operand.operands
    is_as_large = source.shape.element_count == shape.element_count
    opcode = "reshape" if is_as_large else "broadcast"
    return operand.computation.make(opcode, shape, [source])


def _made(operand: MutableInstruction, shape: Shape) -> MutableInstruction:
    make = operand.computation.make
    match operand.opcode:
        case "constant" if operand.shape.element_count != shape.element_count:
            return operand
        case "constant":
            return make("constant", shape, [])
        case "concatenate":
            parts = [
                make("reshape", replace(operand_of.shape, layout=None), [operand_of])
                for operand_of in operand.operands
            ]
            return make("concatenate", shape, parts)
        case "reshape":
            return make("reshape", shape, list(operand.operands))
    return make("reshape", shape, [operand])
