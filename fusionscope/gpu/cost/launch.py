"""The launch dimensions of a kernel: blocks, and threads per block.

Source: GpuPerformanceModelBase::EstimateFusionLaunchDimensions, and the emitters in
xla/backends/gpu/codegen/emitters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fusionscope.dump.device import CudaCapability, Device, RocmCapability
from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.emitters import Emission, EmitterKind
from fusionscope.gpu.inplace_emitter import in_place_updates
from fusionscope.gpu.reductions import Reduction, is_reduction_hero, normal_reduction
from fusionscope.gpu.transposes import TiledTranspose, tiled_transpose
from fusionscope.graph.layouts import normal_transpose, sizes
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import COMPLEX, leaves
from fusionscope.hlo.shape import Shape
from fusionscope.hlo.window import read_window

_WARPS = 4  # per block, one for each scheduler of a core
_UNROLL = 4
_BLACKWELL_UNROLL = 8  # at least
_MOST_CONCATENATED = 10  # operands up to which a concatenate is unrolled
_LARGEST_WINDOW = 8  # elements of a window up to which a reduce-window is unrolled
_MAY_BE_SLOWER = ("concatenate", "dot", "reduce", "reduce-window", "sort")  # if unrolled
_TILE = 32
_THREADS_PER_BLOCK = 256  # the target of row reductions
_ELEMENTS_PER_THREAD = 16
_COLUMN_THREADS = 128
_SCATTER_WARPS = 4
_SCATTER_BITS = 128
_FALLBACK_THREADS = 128


class Launch(NamedTuple):
    blocks: int
    threads: int


Reached = Callable[
    [FusionBody, Sequence[MutableInstruction]], Mapping[MutableInstruction, Sequence[int]]
]


def launch_of(emission: Emission, device: Device, max_unroll: int) -> Launch:
    """Return the launch of an emission. ``max_unroll`` is the flag
    xla_gpu_experimental_max_unroll_factor.
    """
    kind = emission.kind
    if kind is EmitterKind.LOOP:
        updates = in_place_updates(emission.body, emission.roots)
        if updates is not None:
            update = updates[0].operands[1].shape
            return loop_launch(update, device, _unroll(emission, update, device, max_unroll))
        shape = first_leaf(emission.roots[0].shape)
        launch = loop_launch(shape, device, _unroll(emission, shape, device, max_unroll))
        return Launch(_split(launch.blocks, launch.threads, device), launch.threads)
    if kind is EmitterKind.REDUCTION:
        return _reduction(emission, device)
    if kind is EmitterKind.TRANSPOSE:
        return _transpose(emission, device)
    if kind is EmitterKind.CONCATENATE:
        return _concatenate(emission, device, max_unroll)
    if kind is EmitterKind.SCATTER:
        return _scatter(emission, device, max_unroll)
    elements = sum(leaf.element_count for leaf in leaves(emission.roots[0].shape))
    return Launch(ceil_of(elements, _FALLBACK_THREADS), _FALLBACK_THREADS)


def launch_without_vectors_in_scatters(
    emission: Emission, device: Device, max_unroll: int
) -> Launch:
    """Return the launch of jaxlib 0.4.38, whose scatters update one element per thread."""
    if emission.kind is EmitterKind.SCATTER:
        return loop_launch(emission.heroes[0].operands[-1].shape, device, 1)
    return launch_of(emission, device, max_unroll)


def ceil_of(number: int, by: int) -> int:
    return -(-number // by)


def first_leaf(shape: Shape) -> Shape:
    while shape.is_tuple:
        shape = shape.elements[0]
    return shape


def loop_launch(shape: Shape, device: Device, unroll: int) -> Launch:
    """Source: CalculateLaunchDimensions."""
    items = ceil_of(shape.element_count, unroll) or 1
    threads = min(device.threads_per_warp * _WARPS, items)
    blocks = ceil_of(items, threads)
    rows = ceil_of(blocks, device.block_dim_limit_x)
    return Launch(ceil_of(blocks, rows) * rows, threads)


def _split(blocks: int, threads: int, device: Device) -> int:
    """Return the number of blocks after a split into two dimensions, if there are too
    many for one.

    Source: MlirKernelEmitter::MaybeSplitGridDimensionX.
    """
    limit = 2**32 - 1
    is_rocm = isinstance(device.capability, RocmCapability)

    def fits(count: int) -> bool:
        within = count <= device.block_dim_limit_x
        return within and (not is_rocm or count * threads <= limit)

    if fits(blocks):
        return blocks
    rows = 2
    while rows <= device.block_dim_limit_y:
        if fits(ceil_of(blocks, rows)):
            return ceil_of(blocks, rows) * rows
        rows *= 2
    rows = device.block_dim_limit_y
    return ceil_of(blocks, rows) * rows


def _unroll(emission: Emission, shape: Shape, device: Device, max_unroll: int) -> int:
    """Return the elements per thread. Source: gpu_fusible.cc, ComputeLoopFusionConfig."""
    elements = shape.element_count
    unroll = 1
    body = emission.body
    if elements >= device.threads_per_core_limit * device.core_count and not (
        body.holds(*_MAY_BE_SLOWER) and any(map(_gets_slower_unrolled, body.instructions()))
    ):
        unroll = math.gcd(elements, _max_unroll(emission, device, max_unroll))
    return max(unroll, ceil_of(8, emission.output_bits))


def _gets_slower_unrolled(instruction: MutableInstruction) -> bool:
    """Source: MayCausePerformanceDropIfUnrolled."""
    opcode = instruction.opcode
    if opcode == "reduce-window":
        window = read_window(instruction.attributes.get("window", "{}"))
        return math.prod(dimension.size for dimension in window) > _LARGEST_WINDOW
    if opcode == "concatenate":
        return len(instruction.operands) > _MOST_CONCATENATED
    if opcode == "reduce":
        return instruction.shape.is_tuple
    return opcode in ("sort", "dot")


def _toolkit(device: Device) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", device.compile_time_toolkit_version)))


def reads_max_unroll(device: Device) -> bool:
    """Return whether the flag decides anything on a device: only Blackwell unrolls further."""
    capability = device.capability
    return isinstance(capability, CudaCapability) and capability.major == 10


def _max_unroll(emission: Emission, device: Device, max_unroll: int) -> int:
    """Source: MaxUnrollFactor."""
    if not reads_max_unroll(device):
        return _UNROLL
    vector_bits = 256 if _toolkit(device) >= (12, 9) else 128
    opcodes = {instruction.opcode for instruction in emission.body.instructions()}
    if (
        emission.kind not in (EmitterKind.LOOP, EmitterKind.CONCATENATE)
        or emission.output_bits >= vector_bits // _UNROLL
        or len(emission.roots) > 1
        or "reduce" in opcodes
    ):
        return _UNROLL
    if "pad" in opcodes:
        return _BLACKWELL_UNROLL
    values = [*emission.body.parameters(), *emission.roots]
    widest = max(8, *(value.shape.bits for value in values))
    transposes = [
        instruction
        for instruction in emission.body.instructions()
        if instruction.opcode == "transpose"
    ]
    unroll = min(max_unroll, vector_bits // widest, *map(_minor_size, transposes))
    return max(1 << unroll.bit_length() >> 1, _BLACKWELL_UNROLL)


def _minor_size(transpose: MutableInstruction) -> int:
    form = normal_transpose(
        transpose.operands[0].shape, transpose.shape, transpose.attribute("dimensions")
    )
    extents = form.sizes if form is not None else sizes(transpose.shape)
    return extents[-1] if extents else 1


def _concatenate(emission: Emission, device: Device, max_unroll: int) -> Launch:
    """Source: ConcatenateFusion."""
    hero = emission.heroes[0]
    dimension = hero.attribute("dimensions")[0]
    extents = [sizes(operand.shape)[dimension] for operand in hero.operands]
    largest = largest_operand(hero).shape
    unroll = math.gcd(_unroll(emission, largest, device, max_unroll), *extents)
    return loop_launch(largest, device, unroll)


def largest_operand(concatenate: MutableInstruction) -> MutableInstruction:
    """Return the first operand with the largest extent in the concatenated dimension."""
    dimension = concatenate.attribute("dimensions")[0]
    return max(concatenate.operands, key=lambda operand: sizes(operand.shape)[dimension])


def _scatter(emission: Emission, device: Device, max_unroll: int) -> Launch:
    """Source: scatter.cc, CreateScatterFusion."""
    scatter = emission.heroes[0]
    count = len(scatter.operands) // 2
    indices = scatter.operands[count].shape
    updates = scatter.operands[count + 1].shape
    warp = device.threads_per_warp
    slices, index_size = (*sizes(indices), 1, 1)[:2]
    slice_sizes = sizes(updates)[1:]
    most_warps = _SCATTER_WARPS * device.core_count
    if (
        scatter.attribute("indices_are_sorted") is True
        and scatter.attribute("unique_indices") is not True
        and slices > most_warps
    ):
        target = sizes(scatter.operands[0].shape)
        places = math.prod(target[i] - slice_sizes[i] + 1 for i in range(index_size))
        per_warp = ceil_of(slices, max(most_warps, places))
        vector = _SCATTER_BITS // indices.bits
        if index_size == 1 and per_warp > vector:
            per_warp = ceil_of(per_warp, vector) * vector
        return Launch(ceil_of(slices, per_warp * _SCATTER_WARPS), _SCATTER_WARPS * warp)
    vector = math.gcd(math.prod(slice_sizes), _unroll(emission, updates, device, max_unroll))
    launch = loop_launch(updates, device, vector)
    return Launch(launch.blocks, ceil_of(launch.threads, warp) * warp)


def _transpose(emission: Emission, device: Device) -> Launch:
    """Source: transpose.cc."""
    transpose = emission.transpose
    assert transpose is not None, "a transpose kernel has a transpose"
    is_rocm = isinstance(device.capability, RocmCapability)
    threads = _TILE * (8 if is_rocm else 4)
    if transpose.packed_tile is not None:
        return Launch(math.prod(map(ceil_of, *transpose.packed_tile)), threads)
    source, permutation = transpose.form.source_sizes, transpose.form.permutation
    tile = [1] * len(source)
    if permutation[-1] == len(source) - 1:
        tile[-1] = source[-1]
        tile[-2] = tile[permutation[-2]] = _TILE
        return Launch(math.prod(map(ceil_of, source, tile)), threads)
    tile[-1] = tile[permutation[-1]] = _TILE
    launch = Launch(math.prod(map(ceil_of, source, tile)), threads)
    tiles = sum(tiled_transpose(hero) is not None for hero in emission.heroes)
    vector = _vector_of_transpose(transpose, tiles, launch, device)
    tile[-1] = tile[permutation[-1]] = _TILE * vector
    return Launch(math.prod(map(ceil_of, source, tile)), threads)


def _vector_of_transpose(
    transpose: TiledTranspose, tiles: int, launch: Launch, device: Device
) -> int:
    """Return the elements that a thread moves at once. ``launch`` is the launch for one element per
    thread, ``tiles`` the number of tiles held at once.
    """
    source, permutation = transpose.form.source_sizes, transpose.form.permutation
    size = transpose.bits // 8
    shared_memory = _TILE * (_TILE + 1) * size * tiles
    vector = (16 if isinstance(device.capability, RocmCapability) else 4) // size
    while vector > 1:
        per_thread = vector * vector
        if (
            launch.blocks * launch.threads
            >= per_thread * device.core_count * device.threads_per_core_limit
            and shared_memory * per_thread <= device.shared_memory_per_block
            and source[-1] % vector == 0
            and source[permutation[-1]] % vector == 0
        ):
            return vector
        vector //= 2
    return 1


def _reduction(emission: Emission, device: Device) -> Launch:
    """Source: reduction.cc, CreateReductionFusion."""
    pairs = zip(emission.roots, emission.heroes, strict=True)
    hero = next(hero for root, hero in pairs if is_reduction_hero(root, hero, device))
    form = normal_reduction(hero)
    if form.is_row:
        blocks, threads = _several_rows(emission, form, device) or _row(form, device)
    elif device.threads_per_warp % form.minor == 0:
        blocks, threads = _small_column(form)
    else:
        blocks, threads = _column(emission, form)
    return Launch(
        _split(blocks, threads, device) * count_groups(emission, device, _reached), threads
    )


def _rows_together(elements: int, per_row: int) -> int:
    """Return how many rows a block takes so that it has enough threads."""
    return max(1, min(elements, _THREADS_PER_BLOCK // per_row))


def _several_rows(emission: Emission, form: Reduction, device: Device) -> Launch | None:
    """Launch with several rows, of a power of two elements, in one warp. Return None if they do not
    fit.

    Source: MultiRowReductionFusion.
    """
    size = form.minor
    if size & (size - 1):
        return None
    bits = emission.input_bits, emission.output_bits
    largest = max(bits)
    if largest == 2**31 - 1:
        largest = emission.output_bits
    vector = min(size, 64 // min(bits))
    if largest >= 32:
        vector = min(128 // largest, vector)

    def launch() -> Launch:
        per_row = size // vector
        rows = _rows_together(form.middle, per_row)
        return Launch(ceil_of(form.middle, rows), rows * per_row)

    if size > device.threads_per_warp * vector:
        return None
    while vector > 1 and launch().blocks < device.core_count:
        vector //= 2
    return None if size > device.threads_per_warp * vector else launch()


def _row(form: Reduction, device: Device) -> Launch:
    """Launch with each thread reading all its elements of a row, at most 16, since longer rows were
    split earlier.

    Source: RowReductionFusion.
    """
    warp = device.threads_per_warp
    per_row = ceil_of(ceil_of(form.minor, _ELEMENTS_PER_THREAD), warp) * warp
    rows = _rows_together(form.middle, per_row)
    return Launch(ceil_of(form.middle, rows), rows * per_row)


def _small_column(form: Reduction) -> Launch:
    """Source: SmallColumnReductionFusion."""
    return Launch(form.major, min(_COLUMN_THREADS, _TILE * form.minor))


def _column(emission: Emission, form: Reduction) -> Launch:
    """Source: ColumnReductionFusion."""
    vector = _vector(emission, form.minor)
    return Launch(form.major * ceil_of(form.minor, _TILE * vector), _TILE * _TILE)


def _vector(emission: Emission, minor: int) -> int:
    """Return the elements that a thread reads at once. Source: GetVectorSizeForMlir."""
    if minor % 2 or minor < _TILE * 2:
        return 1
    for hero in emission.heroes:
        if any(operand.shape.element_type in COMPLEX for operand in emission.body.operands(hero)):
            return 1
    if emission.input_bits >= 64:
        return 1
    if emission.input_bits >= 32 or minor < _TILE * 4:
        return 2
    return 4 if minor % 4 == 0 else 2


def count_groups(emission: Emission, device: Device, reached: Reached) -> int:
    """Return the number of groups of reductions that share no input. Each group gets its own
    blocks.

    Source: reduction_base.cc, GroupDisjointReductions.
    """
    roots, body = emission.roots, emission.body
    is_reduced = {
        root: is_reduction_hero(root, hero, device)
        for root, hero in zip(roots, emission.heroes, strict=True)
    }
    groups = _Groups(len(roots))
    unreduced = [index for index, root in enumerate(roots) if not is_reduced[root]]
    for index in unreduced[1:]:
        groups.merge(unreduced[0], index)
    for instruction, indices in reached(body, roots).items():
        joined: list[int] = []
        has_reduction = False
        for index in indices:
            if is_reduced[roots[index]]:
                if has_reduction and _is_scalar(instruction):
                    continue
                has_reduction = True
            joined.append(index)
        for index in joined[1:]:
            groups.merge(joined[0], index)
    return groups.count()


def _is_scalar(instruction: MutableInstruction) -> bool:
    """Return whether it is a constant or a scalar, or broadcast (IsBroadcastedConstantOrScalar)."""
    source = instruction.operands[0] if instruction.opcode == "broadcast" else instruction
    return any(
        value.opcode == "constant" or (value.shape.is_array and value.shape.rank == 0)
        for value in (instruction, source)
    )


def _reached(
    body: FusionBody, roots: Sequence[MutableInstruction]
) -> dict[MutableInstruction, list[int]]:
    """Return for each instruction the indices of ``roots`` that depend on it."""
    reached: dict[MutableInstruction, list[int]] = {}
    for index, root in enumerate(roots):
        for instruction in _above(body, root):
            reached.setdefault(instruction, []).append(index)
    return reached


def _above(body: FusionBody, root: MutableInstruction) -> list[MutableInstruction]:
    """Return ``root`` and the instructions that it depends on, in the body and its parameters."""
    visited = {root: None}
    pending = [root]
    while pending:
        for operand in body.operands(pending.pop()):
            if operand not in visited:
                visited[operand] = None
                if operand in body:
                    pending.append(operand)
    return list(visited)


class _Groups:
    """Disjoint sets of numbers.

    networkx has a UnionFind, but importing it would delay the start of every `explain` by 0.1 s.
    """

    def __init__(self, count: int) -> None:
        self._leader = list(range(count))

    def _find(self, number: int) -> int:
        while self._leader[number] != number:
            number = self._leader[number]
        return number

    def merge(self, first: int, second: int) -> None:
        self._leader[self._find(second)] = self._find(first)

    def count(self) -> int:
        return len({self._find(number) for number in range(len(self._leader))})
