"""Puts instructions into fusions, with the compiler's order of operands.

Source: xla/hlo/ir/hlo_instructions.cc.
"""

from __future__ import annotations

from fusionscope.graph.mutable import (
    CONTROL,
    Growth,
    MutableComputation,
    MutableInstruction,
    replace_operand,
)
from fusionscope.hlo.shape import TUPLE, Shape


def create_fusion(
    root: MutableInstruction,
    kind: str,
    name: str = "fusion",
    *,
    inside: str = "fused_computation",
    backend_kind: str | None = None,
) -> MutableInstruction:
    """Return a new fusion of a clone of ``root``, added last to its computation; ``root`` stays.

    ``name`` and ``inside`` are the names wanted for the fusion and its computation. Source:
    HloFusionInstruction.
    """
    computation = root.computation
    module = computation.module
    fusion = MutableInstruction(module.instruction_name(name), "fusion", root.shape, [])
    fusion.fusion_kind = kind
    fusion.backend_kind = backend_kind
    fusion.called = [module.add_computation(inside)]
    computation.add(fusion)
    fusion.fused.root = _add_clone(fusion, root)
    return fusion


def fuse_instruction(
    fusion: MutableInstruction, producer: MutableInstruction
) -> MutableInstruction:
    """Put a clone of ``producer``, an operand of ``fusion``, into it. Return the clone.

    Source: xla/hlo/ir/hlo_instructions.cc, CloneAndAppendInstructionIntoCalledComputation.
    """
    fused = fusion.fused
    slot = fusion.operands.index(producer)
    parameter = fused.parameters[slot]
    clone = clone_into(producer, fused)
    fused.replace_uses(parameter, clone)
    fused.remove(parameter)
    for number, later in enumerate(fused.parameters[slot:], slot):
        later.inside = str(number)
    del fusion.operands[slot]
    producer.users.drop(fusion)
    _adopt_operands(fusion, clone)
    fused.growth.append(Growth(parameter, clone, tuple(clone.operands)))
    return clone


def _add_clone(fusion: MutableInstruction, original: MutableInstruction) -> MutableInstruction:
    clone = clone_into(original, fusion.fused)
    _adopt_operands(fusion, clone)
    return clone


def clone_into(
    original: MutableInstruction,
    target: MutableComputation,
    operands: list[MutableInstruction] | None = None,
) -> MutableInstruction:
    """Add a clone to ``target``. It reads the original's operands if ``operands`` is None."""
    text = original.attributes_text
    clone = MutableInstruction(
        target.module.instruction_name(original.name),
        original.opcode,
        original.shape,
        list(original.operands) if operands is None else operands,
        CONTROL.sub("", text) if "control-predecessors" in text else text,
        original.inside,
    )
    clone.origin = original.origin
    clone.called = list(original.called)
    clone.fusion_kind, clone.backend_kind = original.fusion_kind, original.backend_kind
    return target.add(clone)


def _adopt_operands(fusion: MutableInstruction, clone: MutableInstruction) -> None:
    """Replace the operands of the clone, which are outside of the fusion, by parameters."""
    parameters = fusion.fused.parameters  # grows with each added operand
    for slot, operand in enumerate(clone.operands):
        if operand.parent is clone.parent:
            continue
        if operand in fusion.operands:
            parameter = parameters[fusion.operands.index(operand)]
        else:
            parameter = add_fusion_operand(fusion, operand)
        clone.operands[slot] = parameter
        operand.users.drop(clone)
        parameter.users.add(clone)


def add_fusion_operand(
    fusion: MutableInstruction, operand: MutableInstruction
) -> MutableInstruction:
    """Add ``operand`` to the operands of ``fusion``. Return the parameter for it."""
    fused = fusion.fused
    number = len(fusion.operands)
    parameter = MutableInstruction(
        fused.module.instruction_name(f"param_{number}"),
        "parameter",
        operand.shape,
        [],
        inside=str(number),
    )
    fused.add(parameter)
    fusion.operands.append(operand)
    operand.users.add(fusion)
    return parameter


def add_output(fusion: MutableInstruction, instruction: MutableInstruction) -> None:
    """Put a clone of ``instruction`` into ``fusion`` as another output, which replaces it for its
    users. ``instruction`` stays, without users.

    Source: CloneAndAppendInstructionIntoCalledComputation, with an output.
    """
    computation, fused = fusion.computation, fusion.fused
    if instruction in fusion.operands:
        clone = fuse_instruction(fusion, instruction)
        if not instruction.users and not instruction.is_root:
            return
    else:
        clone = _add_clone(fusion, instruction)
    root = fused.root
    if root.opcode == "tuple" and clone in root.operands:
        index = root.operands.index(clone)
        computation.replace_uses(instruction, add_element(fusion, index))
        return
    elements = [*(root.operands if root.opcode == "tuple" else [root]), clone]
    fusion.shape = Shape(TUPLE, elements=tuple(element.shape for element in elements))
    fused.root = fused.make("tuple", fusion.shape, elements)
    if root.opcode == "tuple":
        fused.remove(root)
    else:
        computation.replace_uses(fusion, add_element(fusion, 0))
    computation.replace_uses(instruction, add_element(fusion, len(elements) - 1))


def add_element(fusion: MutableInstruction, index: int) -> MutableInstruction:
    """Add a get-tuple-element of one result of ``fusion``, or of another tuple."""
    shape = fusion.shape.elements[index]
    return fusion.computation.make("get-tuple-element", shape, [fusion], f", index={index}")


def merge_fusion(fusion: MutableInstruction, producer: MutableInstruction) -> None:
    """Put the contents of the fusion ``producer``, an operand of ``fusion``, into ``fusion``.
    ``producer`` stays if it has other users.

    Source: MergeFusionInstruction.
    """
    clones = unpack(producer)
    root = producer.fused.root
    is_passed_on = root.opcode == "parameter"
    result = producer.operands[root.parameter_number] if is_passed_on else clones[-1]
    replace_operand(fusion, producer, result)
    for clone in reversed(clones):
        fuse_instruction(fusion, clone)
        clone.computation.remove(clone)


def merge_outputs(fusion: MutableInstruction, sibling: MutableInstruction) -> None:
    """Put the contents of the fusion ``sibling``, which does not depend on ``fusion``, into
    ``fusion`` as more outputs, and remove ``sibling``.

    Source: MergeFusionInstructionIntoMultiOutput.
    """
    computation = sibling.computation
    clones = unpack(sibling)
    outputs = [clones[-1]]
    if sibling.is_multi_output:
        tuple_, outputs = clones.pop(), []
        for element in list(sibling.users):
            output = tuple_.operands[int(element.attributes["index"])]
            if any(user is not fusion for user in element.users) or element.is_root:
                outputs.append(output)
            computation.replace_uses(element, output)
            computation.remove(element)
        computation.remove(tuple_)
    else:
        computation.replace_uses(sibling, clones[-1])
    computation.remove(sibling)
    for clone in reversed(clones):
        if clone in outputs:
            add_output(fusion, clone)
        else:
            fuse_instruction(fusion, clone)
        computation.remove(clone)


def unpack(fusion: MutableInstruction) -> list[MutableInstruction]:
    """Clone the contents of a fusion, without parameters, beside it. Return the clones, operands
    before users.

    The root is the last. Dead code, of which the compiler leaves none in fusions, is not cloned.
    """
    order = fusion.fused.post_order()
    live = {fusion.fused.root}
    for inner in reversed(order):
        if inner in live:
            live.update(inner.operands)
    outside: dict[MutableInstruction, MutableInstruction] = {}
    clones: list[MutableInstruction] = []
    for inner in order:
        if inner.opcode == "parameter":
            outside[inner] = fusion.operands[inner.parameter_number]
        elif inner in live:
            operands = [outside[operand] for operand in inner.operands]
            outside[inner] = clone_into(inner, fusion.computation, operands)
            clones.append(outside[inner])
    return clones


def fuse_consumer(fusion: MutableInstruction, consumer: MutableInstruction) -> None:
    """Make a clone of ``consumer``, the only user of ``fusion``, its new root, and remove
    ``consumer``.

    Source: xla/backends/cpu/transforms/library_rewriter.cc, FuseConsumerInstruction.
    """
    fused = fusion.fused
    operands: list[MutableInstruction] = []
    for operand in consumer.operands:
        if operand is fusion:
            operands.append(fused.root)
        elif operand in fusion.operands:
            operands.append(fused.parameters[fusion.operands.index(operand)])
        else:
            operands.append(add_fusion_operand(fusion, operand))
    fused.root = clone_into(consumer, fused, operands)
    fusion.shape = consumer.shape
    fusion.computation.replace(consumer, fusion)


def take_out_root(fusion: MutableInstruction) -> None:
    """Make the operand of the root of ``fusion`` its new root. A clone of the old root reads the
    fusion.
    """
    computation, root = fusion.computation, fusion.fused.root
    clone = clone_into(root, computation, [fusion])
    computation.replace_uses(fusion, clone)
    fusion.fused.root = root.operands[0]
    fusion.shape = fusion.fused.root.shape
    fusion.fused.remove(root)
