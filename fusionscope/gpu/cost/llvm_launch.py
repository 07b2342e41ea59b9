"""The launch dimensions of kernels by the emitters that write LLVM IR.

Source: xla/service/gpu/fusions/legacy of October 2024.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from fusionscope.dump.device import Device
from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.cost.launch import (
    Launch,
    ceil_of,
    count_groups,
    first_leaf,
    largest_operand,
    loop_launch,
)
from fusionscope.gpu.emitters import Emission, EmitterKind
from fusionscope.gpu.inplace_emitter import in_place_updates
from fusionscope.gpu.reductions import Reduction, is_reduction_hero, normal_reduction
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import leaves
from fusionscope.hlo.shape import Shape

_NOT_UNROLLED = frozenset("atan2 cosine dot power reduce-window sine sort tan".split())
_MOST_CONCATENATED = 10  # operands up to which a concatenate is unrolled
_WARP = 32
_ROWS_OF_TILE = 4  # threads in the other dimension of a tile
_ELEMENTS_PER_THREAD = 16
_LONGEST_BLOCK = 1024  # threads
_AIM = 256  # threads of a block that reduces rows
_COLUMN_TILE = 128
_MOST_ROWS_IN_BATCH = 8
_FALLBACK_THREADS = 128


def llvm_launch_of(emission: Emission, device: Device, max_unroll: int) -> Launch:
    """Return the launch of an emission. ``max_unroll`` is the most elements that a thread computes
    in a loop.
    """
    kind, hero = emission.kind, emission.heroes[0]
    if kind is EmitterKind.LOOP:
        updates = in_place_updates(emission.body, emission.roots)
        if updates is not None:
            return loop_launch(updates[0].operands[1].shape, device, 1)
        shape = first_leaf(emission.roots[0].shape)
        return loop_launch(shape, device, _unroll(emission, shape, device, max_unroll))
    if kind is EmitterKind.REDUCTION:
        return _reduction(emission, device)
    if kind is EmitterKind.TRANSPOSE:
        return _transpose(emission)
    if kind is EmitterKind.CONCATENATE:
        return loop_launch(largest_operand(hero).shape, device, 1)
    if kind is EmitterKind.SCATTER:
        return loop_launch(emission.roots[0].operands[-1].shape, device, 1)
    if kind is EmitterKind.SLICES:
        shape = emission.roots[0].operands[0].shape
        return loop_launch(shape, device, ceil_of(8, emission.output_bits))
    elements = sum(leaf.element_count for leaf in leaves(emission.roots[0].shape))
    return Launch(ceil_of(elements, _FALLBACK_THREADS), _FALLBACK_THREADS)


def reads_max_unroll(_device: Device) -> bool:
    """Return whether the flag decides anything on a device: it does on all."""
    return True


def _unroll(emission: Emission, shape: Shape, device: Device, max_unroll: int) -> int:
    """Return the elements per thread. Source: ComputeLoopFusionConfig."""
    elements, unroll = shape.element_count, 1
    if elements >= device.threads_per_core_limit * device.core_count and not _resists(emission):
        unroll = math.gcd(elements, max_unroll)
    return max(unroll, ceil_of(8, emission.output_bits))


def _resists(emission: Emission) -> bool:
    """Return whether unrolling slows down some instruction. Source: MayPreventVectorization."""
    return any(
        instruction.opcode in _NOT_UNROLLED
        or (instruction.opcode == "concatenate" and len(instruction.operands) > _MOST_CONCATENATED)
        or (instruction.opcode == "reduce" and instruction.shape.is_tuple)
        for instruction in emission.body.instructions()
    )


def _transpose(emission: Emission) -> Launch:
    """Source: ComputeTransposeTiling."""
    transpose = emission.transpose
    assert transpose is not None, "a transpose kernel has a transpose"
    tile = [1, 1, _WARP]
    tile[transpose.form.permutation[2]] = _WARP
    blocks = math.prod(map(ceil_of, transpose.form.source_sizes, tile))
    return Launch(blocks, _WARP * _ROWS_OF_TILE)


def _reduction(emission: Emission, device: Device) -> Launch:
    """Source: ReductionInfo::Create."""
    pairs = zip(emission.roots, emission.heroes, strict=True)
    hero = next(hero for root, hero in pairs if is_reduction_hero(root, hero, device))
    form = normal_reduction(hero)
    launch = _rows(form, emission) if form.is_row else _columns(form)
    return Launch(launch.blocks * count_groups(emission, device, _reached), launch.threads)


def _rows(form: Reduction, emission: Emission) -> Launch:
    is_small = form.minor < _WARP and _WARP % form.minor == 0  # several rows in a warp
    along = form.minor
    if not is_small:
        warps = ceil_of(ceil_of(form.minor, _ELEMENTS_PER_THREAD), _WARP)
        along = min(_LONGEST_BLOCK, warps * _WARP)
    rows = 1
    if 2 * along <= _AIM:
        rows = _AIM // along
        if form.middle * along <= _AIM:
            rows = form.middle
            while along * rows % _WARP:
                rows += 1
    vector = 1 if form.minor % 2 or 2 * along > form.minor or _resists(emission) else 2
    per_thread = 1 if is_small else max(_ELEMENTS_PER_THREAD // vector, 1)
    blocks = (
        ceil_of(form.major, min(form.major, _MOST_ROWS_IN_BATCH)),
        ceil_of(form.middle, rows),
        ceil_of(form.minor // vector, along * per_thread),
    )
    return Launch(math.prod(blocks), along * rows)


def _columns(form: Reduction) -> Launch:
    blocks = form.major * ceil_of(form.middle, _WARP * _COLUMN_TILE) * ceil_of(form.minor, _WARP)
    return Launch(blocks, _WARP * _WARP)


def _reached(
    body: FusionBody, roots: Sequence[MutableInstruction]
) -> dict[MutableInstruction, list[int]]:
    """Return for each instruction the indices of ``roots`` that depend on it, as far as the
    compiler sees. It visits each instruction once, possibly before it has visited all its users.

    Source: GroupDisjointReductions, not for MLIR.
    """
    reached = {root: {index} for index, root in enumerate(roots)}
    pending = deque(roots)
    visited = set(roots)
    while pending:
        current = pending.popleft()
        for operand in body.operands(current):
            reached.setdefault(operand, set()).update(reached[current])
            if operand in body and operand not in visited:
                visited.add(operand)
                pending.append(operand)
    return {instruction: sorted(indices) for instruction, indices in reached.items()}
