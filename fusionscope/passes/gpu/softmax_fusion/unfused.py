"""Estimates the run time of a computation that only the main fusion passes fuse.

Source: xla/backends/gpu/transforms/softmax_rewriter_triton.cc,
EstimateOptimizedHloRunTimeWithoutSoftMaxRewriterTriton and RunFusionPipeline.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from math import isqrt

from fusionscope.dump.device import Device
from fusionscope.gpu.cost.duration import Duration
from fusionscope.gpu.model import GpuModel
from fusionscope.gpu.reductions import has_reduction_emitter
from fusionscope.gpu.state import GpuState
from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
    empty_module,
)
from fusionscope.hlo import Layout, Shape
from fusionscope.passes.gpu.multi_output_fusion.rules import GPU_MULTI_OUTPUT
from fusionscope.passes.gpu.multi_output_fusion.run import GpuMultiOutputFusion
from fusionscope.passes.gpu.priority_fusion.rules import GPU_FUSION
from fusionscope.passes.gpu.priority_fusion.run import PriorityFusion

_LONGEST_ROW = 16 * 1024
_MAX_UNROLL = 32  # without a flag


def time_unfused(computation: MutableComputation, device: Device, gpu_model: GpuModel) -> Duration:
    """Return the time of the kernels that it would become, without their launches.

    It has one reduction, of the last dimension, in the default layout. Like the compiler, this uses
    the default flags, not those of the compilation.
    """
    graph = extract(computation)
    gpu_model = replace(gpu_model, max_unroll=_MAX_UNROLL, has_heroless_triton=False)
    fuse(graph, device, gpu_model)
    model = GpuState(device, gpu_model).model
    return sum(model.time(instruction).total for instruction in graph.entry.instructions)


def extract(computation: MutableComputation) -> MutableModule:
    """Return a module with a copy of ``computation``, where only reductions call others."""
    graph = empty_module()
    callees = {callee for instruction in computation.instructions for callee in instruction.called}
    graph.entry = _copy(
        computation, graph, {callee: _copy(callee, graph, {}) for callee in callees}
    )
    return graph


def _copy(
    computation: MutableComputation,
    graph: MutableModule,
    callees: dict[MutableComputation, MutableComputation],
) -> MutableComputation:
    copied = graph.add_computation(computation.name)
    copies: dict[MutableInstruction, MutableInstruction] = {}
    for instruction in computation.instructions:
        copy = MutableInstruction(
            graph.instruction_name(instruction.name),
            instruction.opcode,
            instruction.shape,
            [copies[operand] for operand in instruction.operands],
            instruction.attributes_text,
            instruction.inside,
        )
        copy.called = [callees[callee] for callee in instruction.called]
        copies[instruction] = copied.add(copy)
    copied.root = copies[computation.root]
    return copied


def fuse(graph: MutableModule, device: Device, gpu_model: GpuModel) -> None:
    """Run the passes that can change a reduction of one dimension. The compiler also runs
    ReductionDimensionGrouper and ReductionSplitter, which look for several dimensions.
    """
    _split_long_row(graph.entry, device)
    PriorityFusion(graph=graph, book=GPU_FUSION, state=GpuState(device, gpu_model)).run()
    _merge_equal(graph.entry.instructions)
    GpuMultiOutputFusion(graph, GPU_MULTI_OUTPUT, GpuState(device, gpu_model)).run()
    _merge_equal(graph.entry.instructions)


def _split_long_row(computation: MutableComputation, device: Device) -> None:
    """Reduce a row that is too long for one block in two steps.

    Source: xla/backends/gpu/transforms/tree_reduction_rewriter.cc.
    """
    for reduce in list(computation.instructions):
        if not has_reduction_emitter(reduce, device):
            continue
        source, start = reduce.operands
        *rows, length = sizes(source.shape)
        if length <= _LONGEST_ROW:
            continue
        outer, inner = _parts(length)
        if outer * inner > length:
            padding = "x".join(["0_0"] * len(rows) + [f"0_{outer * inner - length}"])
            shape = _with_dimensions(source.shape, (*rows, outer * inner))
            source = _add(reduce, "pad", shape, [source, start], f", padding={padding}")
        shape = _with_dimensions(source.shape, (*rows, outer, inner))
        source = _add(reduce, "bitcast", shape, [source])
        for shape in (_with_dimensions(source.shape, (*rows, outer)), reduce.shape):
            text = f", dimensions={{{shape.rank}}}, to_apply=%{reduce.called[0].name}"
            source = _add(reduce, "reduce", shape, [source, start], text)
        computation.replace(reduce, source)


def _with_dimensions(shape: Shape, dimensions: tuple[int, ...]) -> Shape:
    rank = len(dimensions)
    layout = Layout(tuple(reversed(range(rank))))
    return Shape(shape.element_type, dimensions, (False,) * rank, layout)


def _add(
    reduce: MutableInstruction,
    opcode: str,
    shape: Shape,
    operands: list[MutableInstruction],
    attributes: str = "",
) -> MutableInstruction:
    """Add an instruction beside ``reduce``, with its called computation if it reduces too."""
    computation = reduce.computation
    name = computation.module.instruction_name(opcode)
    added = MutableInstruction(name, opcode, shape, operands, attributes)
    if opcode == "reduce":
        added.called = list(reduce.called)
    return computation.add(added)


def _parts(length: int) -> tuple[int, int]:
    """Return the number of parts of a row and their length, with as little padding as possible.

    Source: ComputeSplitParams, ShouldSwapInnerAndOuterReducedMinorDimension.
    """
    root = isqrt(length)
    shorter, padding = root, -length % root
    for candidate in range(root - 1, root // 2, -1):
        own_padding = -length % candidate
        if own_padding < padding or (own_padding == padding and candidate.bit_count() == 1):
            shorter, padding = candidate, own_padding
    longer = (length + padding) // shorter
    if shorter % 2 == 0 and length % 2 == 0:
        swaps = shorter * 2 < longer or longer % 2 == 0
    else:
        swaps = length % 2 == 0 or longer % 2 != 0
    return (shorter, longer) if swaps else (longer, shorter)


def _merge_equal(instructions: Iterable[MutableInstruction]) -> None:
    """Remove duplicates within each fusion: instructions that do the same with the same operands.

    Source: xla/service/hlo_cse.cc.
    """
    for fusion in instructions:
        if fusion.opcode != "fusion":
            continue
        firsts: dict[Hashable, MutableInstruction] = {}
        for instruction in fusion.fused.post_order():
            if instruction.opcode == "parameter":
                continue
            attributes = {k: v for k, v in instruction.attributes.items() if k != "metadata"}
            key = (
                instruction.opcode,
                instruction.shape,
                tuple(instruction.operands),
                instruction.inside,
                *attributes.items(),
            )
            first = firsts.setdefault(key, instruction)
            if first is not instruction:
                fusion.fused.replace_uses(instruction, first)
                fusion.fused.remove(instruction)
