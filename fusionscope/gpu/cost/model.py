"""The compiler's cost model for the run time of kernels, with its caches.

Source: xla/service/gpu/model/combined_gpu_performance_model.cc, gpu_performance_model_base.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from fusionscope.dump.device import Device
from fusionscope.gpu.body import FusionBody, added_parameters, elements_of, part_roots
from fusionscope.gpu.cost.analysis import CostAnalysis, shape_bytes
from fusionscope.gpu.cost.coalescing import spoils_coalescing
from fusionscope.gpu.cost.cycles import architecture_of
from fusionscope.gpu.cost.duration import INFINITE, Duration
from fusionscope.gpu.cost.launch import Launch
from fusionscope.gpu.cost.memory import (
    KERNEL_LAUNCH,
    ComputeTime,
    coalescing_utilization,
    read_time,
    write_time,
)
from fusionscope.gpu.cost.numbers import (
    add_product,
    f32,
    round_to_int64,
    saturated,
    to_int64,
    wrap_int64,
)
from fusionscope.gpu.emitters import (
    Emission,
    EmitterKind,
    Emitters,
    configured_part,
    emission_of,
    is_generic_triton,
)
from fusionscope.gpu.reductions import has_reduction_emitter, is_reduction_hero
from fusionscope.gpu.structure import Structures
from fusionscope.gpu.tiling.kernel import Tiling
from fusionscope.gpu.tiling.search import Untileable
from fusionscope.gpu.triton import Triton
from fusionscope.graph.layouts import sizes
from fusionscope.graph.mutable import MutableInstruction, slots_of
from fusionscope.graph.properties import is_elementwise
from fusionscope.grouping import Numbers

_SHOWN = 5  # consumers listed by name with their share of the cost
_OPAQUE_BITS = 32  # the compiler's size of an element of a tuple or token


@dataclass(frozen=True, slots=True)
class RunTime:
    """The run time of one kernel: flops, bytes, durations, and its launch."""

    flops: int
    bytes_read: int
    bytes_written: int
    read: Duration
    write: Duration
    compute: Duration
    total: Duration
    launch: Launch


class Estimate(NamedTuple):
    """Durations of a producer and its consumers, launches included: unfused, and fused."""

    unfused: Duration
    fused: Duration


@dataclass(frozen=True, slots=True)
class ConsumerShare:
    """What one consumer adds to the times of a producer and its consumers, launches included."""

    name: str
    estimate: Estimate

    @property
    def loss(self) -> Duration:
        """What fusing the producer into the consumer costs; 0 if neither time is known."""
        unfused, fused = self.estimate
        return 0 if unfused == fused else fused - unfused


@dataclass(frozen=True, slots=True)
class ConsumerCosts:
    """The costs of fusing a producer into all of its consumers, whose number is ``count``.

    ``costliest`` are those into which fusing it costs most, the worst first; ``consumer`` and
    ``together`` are the run times of that one, and of the producer and it as one kernel.
    """

    count: int
    estimate: Estimate
    producer: RunTime
    costliest: tuple[ConsumerShare, ...]
    consumer: RunTime
    together: RunTime


@dataclass(frozen=True, slots=True)
class PairCost:
    """The costs of a pair: those of fusing its producer into all consumers, and ``share``, what its
    own consumer adds to them. ``benefit`` is what the compiler expected of the fusion, which may be
    out of date; the other times are as they would be estimated now.
    """

    benefit: Duration
    share: ConsumerShare
    all: ConsumerCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFormulas:
    """The formulas by which one compiler version estimates run times.

    - ``launch`` takes an emission, the device, and the most elements that a thread computes.
    - ``reads_max_unroll`` takes the device, and returns whether that most decides anything there.
    - ``compute_time`` takes the device, flops, blocks, and threads per block.
    - ``combine`` takes the times of computing and of memory access, and returns that of both.
    - ``sees_through_bitcasts``: inside a fusion, a bitcast to the same shape counts as elementwise.
    - ``rounds_products``: a product is rounded before it is added. False if the compiler was built
      for processors with fused multiply-add.
    - ``keeps_emissions``: a kernel that multi-output fusion gave further results is estimated with
      the emitter that it had when it was estimated first.
    """

    analysis: type[CostAnalysis]
    launch: Callable[[Emission, Device, int], Launch]
    reads_max_unroll: Callable[[Device], bool]
    compute_time: ComputeTime
    combine: Callable[[Duration, Duration], Duration]
    sees_through_bitcasts: bool
    rounds_products: bool
    keeps_emissions: bool = False


@dataclass(frozen=True, slots=True)
class Lookups:
    """What cost models of one ``device`` and compiler, ``target``, computed, by the ``numbers`` of
    what it depends on: run times, kinds of emitters and sizes of kernels, and the tilings of pairs.
    """

    target: tuple[object, ...] = ()

    numbers: Numbers = field(default_factory=Numbers)
    times: dict[int, RunTime] = field(default_factory=dict)
    pairs: dict[Hashable, RunTime] = field(default_factory=dict)
    kinds: dict[Hashable, EmitterKind] = field(default_factory=dict)
    sizes: dict[Hashable, int] = field(default_factory=dict)
    reads: dict[tuple[int, int, int, int], Duration] = field(default_factory=dict)
    tilings: dict[Hashable, Tiling | Untileable] = field(default_factory=dict)


class CostModel:
    """Run times of kernels on ``device``.

    Estimates are cached until ``invalidate``. Like the compiler, ``estimate`` uses cached times
    even if they are out of date. ``lookups`` are those of other models of the same device and
    compiler, such as that of another replay of a module.
    """

    def __init__(
        self,
        device: Device,
        max_unroll: int,
        triton: Triton,
        emitters: Emitters,
        formulas: CostFormulas,
        lookups: Lookups | None = None,
    ) -> None:
        self.device = device
        self.costs = formulas.analysis(
            architecture_of(device),
            sees_through_bitcasts=formulas.sees_through_bitcasts,
            rounds_products=formulas.rounds_products,
        )
        self._formulas = formulas
        self._max_unroll = max_unroll
        self._triton = triton
        self._emitters = emitters
        self._lookups = Lookups() if lookups is None else lookups
        self._structures = Structures(self._lookups.numbers)
        self._unequal: dict[tuple[MutableInstruction, MutableInstruction], object] = {}
        self._times: dict[MutableInstruction, RunTime] = {}
        self._pairs: dict[MutableInstruction, dict[MutableInstruction, Duration]] = {}
        self._emissions: dict[tuple[MutableInstruction, ...], Emission] = {}
        self._emissions_with: dict[MutableInstruction, set[tuple[MutableInstruction, ...]]] = {}
        # Those of a kernel before it changed.
        self._outdated: set[tuple[MutableInstruction, ...]] = set()
        self._spoiling: dict[MutableInstruction, bool] = {}
        self._own_reads: dict[MutableInstruction, dict[tuple[int, bool], tuple[int, Duration]]] = {}

    def emission(self, *parts: MutableInstruction) -> Emission:
        """Return how an instruction, or a producer and a consumer together, would be emitted."""
        emission = self._emissions.get(parts)
        if emission is None:
            emission = self._emissions[parts] = emission_of(
                FusionBody(*parts), self.device, self._emitters
            )
            for part in parts:
                self._emissions_with.setdefault(part, set()).add(parts)
        return emission

    def kind(self, producer: MutableInstruction, consumer: MutableInstruction) -> EmitterKind:
        """Return how the two together would be emitted."""
        key = self._key(producer, consumer)
        kind = self._lookups.kinds.get(key)
        if kind is None:
            kind = self._lookups.kinds[key] = self.emission(producer, consumer).kind
        return kind

    def merged_size(self, producer: MutableInstruction, consumer: MutableInstruction) -> int:
        """Return the number of instructions that would be emitted for the two as one kernel."""
        key = self._key(producer, consumer)
        merged = self._lookups.sizes.get(key)
        if merged is None:
            costs, repeated = self.costs, 1
            if consumer.opcode == "fusion":
                parameter = consumer.fused.parameters[slots_of(consumer, producer)[0]]
                repeated = int(costs.of_fusion(consumer).inside.emitted[parameter])
            size = costs.of(producer).ir_size * repeated + costs.of(consumer).ir_size
            merged = self._lookups.sizes[key] = int(size)
        return merged

    def find_tiling(
        self,
        producer: MutableInstruction,
        consumer: MutableInstruction,
        *,
        writes_producer: bool = False,
    ) -> Tiling | Untileable:
        """Return the fastest tiling of the two as one Triton kernel."""
        key = self._key(producer, consumer), writes_producer
        tiling = self._lookups.tilings.get(key)
        if tiling is None:
            body = FusionBody(producer, consumer, writes_producer=writes_producer)
            tiling = self._triton.find_best_tiling(body)
            self._lookups.tilings[key] = tiling
        return tiling

    def _structure(self, instruction: MutableInstruction) -> int:
        """Return a number that is equal for instructions with equal costs."""
        details: tuple[Hashable, ...] = ()
        if instruction.opcode in ("copy", "transpose"):
            details = (self._spoils_coalescing(instruction),)  # depends on what it reads
        elif instruction.backend_kind:
            details = (self._triton.config(instruction),)
        return self._structures.of(instruction, *details)

    def _key(self, producer: MutableInstruction, consumer: MutableInstruction) -> Hashable:
        """Return a key that is equal for pairs with equal costs. Elements of a tuple are not the
        tuple itself, so a producer of one is only equal to itself.
        """
        if producer.shape.is_tuple:
            return self._unequal.setdefault((producer, consumer), object())
        numbers = self._structure(producer), self._structure(consumer)
        return self._structures.of_pair(producer, consumer, *numbers)

    def invalidate(self, instruction: MutableInstruction) -> None:
        """Discard all times that involve ``instruction``, which is about to change.

        Pairs in which it is the consumer are only discarded for its present operands. Source:
        GpuPerformanceModelCache::Invalidate.
        """
        self._times.pop(instruction, None)
        self._pairs.pop(instruction, None)
        for operand in instruction.operands:
            if operand.opcode == "get-tuple-element":
                operand = operand.operands[0]
            if operand in self._pairs:
                self._pairs[operand].pop(instruction, None)

    def changed(self, instruction: MutableInstruction, *, has_outputs: bool = False) -> None:
        """Discard what is known of the contents of ``instruction``, which has changed: more of its
        values are written if it ``has_outputs``.
        """
        self.costs.forget(instruction)
        self._structures.forget(instruction)
        self._spoiling.pop(instruction, None)
        self._own_reads.pop(instruction, None)
        if has_outputs and self._formulas.keeps_emissions:
            self._outdated.update(self._emissions_with.get(instruction, ()))
            return
        for parts in self._emissions_with.pop(instruction, ()):
            self._emissions.pop(parts, None)
            self._outdated.discard(parts)

    def forget_inside(self, fusion: MutableInstruction) -> None:
        """Discard what is known of the contents of ``fusion``, which is removed."""
        self.costs.forget_inside(fusion)
        self._structures.forget_inside(fusion)

    def known_time(self, instruction: MutableInstruction) -> Duration:
        return self._times[instruction].total

    def known_pairs(
        self, producer: MutableInstruction
    ) -> dict[MutableInstruction, Duration] | None:
        """Return the known times of ``producer`` fused into its consumers, or None."""
        return self._pairs.get(producer)

    def set_pair(
        self, producer: MutableInstruction, consumer: MutableInstruction, time: Duration
    ) -> None:
        self._pairs.setdefault(producer, {})[consumer] = time

    def time(self, instruction: MutableInstruction) -> RunTime:
        """Source: EstimateRunTimeForInstruction."""
        run_time = self._times.get(instruction)
        if run_time is None and (instruction,) in self._outdated:
            run_time = self._times[instruction] = self._native(instruction)
        if run_time is None:
            structure = self._structure(instruction)
            run_time = self._lookups.times.get(structure)
            if run_time is None:
                if is_generic_triton(instruction):
                    run_time = _of_tiling(self._triton.tiling(instruction))
                else:
                    run_time = self._native(instruction)
                self._lookups.times[structure] = run_time
            self._times[instruction] = run_time
        return run_time

    def estimate(
        self, producer: MutableInstruction, consumers: Iterable[MutableInstruction]
    ) -> Estimate:
        """Source: EstimateRunTimes."""
        unfused = KERNEL_LAUNCH + self.time(producer).total
        fused: Duration = 0
        for consumer in consumers:
            share = self.share(producer, consumer)
            unfused += share.unfused
            fused += share.fused
        return Estimate(unfused, fused)

    def share(self, producer: MutableInstruction, consumer: MutableInstruction) -> Estimate:
        """Return what one consumer adds to the times of a producer and its consumers."""
        time = self.time(consumer).total
        return Estimate(KERNEL_LAUNCH + time, KERNEL_LAUNCH + self._pair(producer, consumer))

    def estimate_multi_output(
        self, producer: MutableInstruction, consumer: MutableInstruction
    ) -> Estimate:
        """Return the times with the producer written too (EstimateRunTimesForMultiOutput)."""
        if self._formulas.keeps_emissions:
            for parts in ((producer,), (consumer,), (producer, consumer)):
                self.emission(*parts)
        unfused = 2 * KERNEL_LAUNCH + self.time(producer).total + self.time(consumer).total
        duration = self._pairs.get(producer, {}).get(consumer)
        if duration is None:
            duration = self.pair_time(producer, consumer, writes_producer=True).total
            self.set_pair(producer, consumer, duration)
        return Estimate(unfused, KERNEL_LAUNCH + duration)

    def share_aside(self, producer: MutableInstruction, consumer: MutableInstruction) -> Estimate:
        """Return the estimate for one consumer uncached: the compiler does not ask for it."""
        pair = self._pairs.get(producer, {}).get(consumer)
        pair = self.pair_time(producer, consumer).total if pair is None else pair
        return Estimate(KERNEL_LAUNCH + self.time(consumer).total, KERNEL_LAUNCH + pair)

    def _pair(self, producer: MutableInstruction, consumer: MutableInstruction) -> Duration:
        duration = self._pairs.get(producer, {}).get(consumer)
        if duration is None:
            duration = self.pair_time(producer, consumer).total
            self.set_pair(producer, consumer, duration)
        return duration

    def _native(self, instruction: MutableInstruction) -> RunTime:
        costs = self.costs.of(instruction)
        emission = self.emission(instruction)
        launch = self.launch(emission)
        coalesced = self._is_coalesced(emission, instruction)
        bytes_read, read = self._reads(instruction, launch, coalesced=coalesced)
        bytes_written = saturated(costs.output_bytes)
        write = write_time(self.device, bytes_written)
        return self._run_time(
            saturated(costs.flops), bytes_read, bytes_written, read, write, launch
        )

    def launch(self, emission: Emission) -> Launch:
        """Return the launch of an emission. A Triton fusion has a block for each of its tiles, even
        if they do not match its current contents. Source: EstimateFusionLaunchDimensions,
        TritonFusion::GetLaunchConfig.
        """
        if emission.kind is EmitterKind.TRITON:
            part = configured_part(emission.body)
            config = self._triton.config(part) if part is not None else None
            if config is not None:
                extents = sizes(emission.roots[0].shape)
                pairs = zip(extents, config.tile_sizes, strict=False)
                counts = (-(-extent // size) for extent, size in pairs)
                return Launch(math.prod(counts), config.warps * self.device.threads_per_warp)
        return self._formulas.launch(emission, self.device, self._max_unroll)

    def pair_time(
        self,
        producer: MutableInstruction,
        consumer: MutableInstruction,
        *,
        writes_producer: bool = False,
    ) -> RunTime:
        """Return the run time of the two as one kernel."""
        if (producer, consumer) in self._outdated:
            return self._pair_time(producer, consumer, writes_producer=writes_producer)
        key = self._key(producer, consumer), writes_producer
        run_time = self._lookups.pairs.get(key)
        if run_time is None:
            run_time = self._pair_time(producer, consumer, writes_producer=writes_producer)
            self._lookups.pairs[key] = run_time
        return run_time

    def _pair_time(
        self,
        producer: MutableInstruction,
        consumer: MutableInstruction,
        *,
        writes_producer: bool,
    ) -> RunTime:
        """Source: EstimateRunTimeForFusionUncached."""
        first, second = self.time(producer), self.time(consumer)
        if INFINITE in (first.total, second.total):
            return _ENDLESS
        costs = self.costs.of(consumer)
        utilization = 0.0
        for slot in slots_of(consumer, producer):
            utilization = f32(utilization + costs.utilization[slot])
        flops = to_int64(
            add_product(
                f32(second.flops),
                f32(first.flops),
                utilization,
                rounds_product=self._formulas.rounds_products,
            )
        )
        emission = self.emission(producer, consumer)
        launch = self.launch(emission)
        coalesced = self._is_coalesced(emission, producer, consumer)
        bytes_read, read = self._pair_reads(producer, consumer, launch, coalesced=coalesced)
        bytes_written, write = second.bytes_written, second.write
        if writes_producer:
            bytes_written += first.bytes_written
            write += first.write
        return self._run_time(flops, bytes_read, bytes_written, read, write, launch)

    def consumer_share(
        self, producer: MutableInstruction, consumer: MutableInstruction
    ) -> ConsumerShare:
        """Return what ``consumer`` adds to the times, under the name that its result had before."""
        return ConsumerShare(consumer.result_name, self.share(producer, consumer))

    def consumer_costs(self, producer: MutableInstruction) -> ConsumerCosts:
        """Return the costs of fusing ``producer`` into all of its consumers, at least one."""
        shares = [(self.consumer_share(producer, user), user) for user in producer.users]
        shares.sort(key=lambda share_of_user: -share_of_user[0].loss)
        worst = shares[0][1]
        tiling = self._triton.known_tiling(self._triton.identity(producer, worst))
        return ConsumerCosts(
            len(shares),
            self.estimate(producer, producer.users),
            self.time(producer),
            tuple(share for share, _ in shares[:_SHOWN]),
            self.time(worst),
            self.pair_time(producer, worst) if tiling is None else _of_tiling(tiling),
        )

    def _run_time(
        self,
        flops: int,
        bytes_read: int,
        bytes_written: int,
        read: Duration,
        write: Duration,
        launch: Launch,
    ) -> RunTime:
        formulas = self._formulas
        compute = formulas.compute_time(self.device, flops, launch.blocks, launch.threads)
        total = formulas.combine(compute, read + write)
        return RunTime(flops, bytes_read, bytes_written, read, write, compute, total, launch)

    def _reads(
        self, instruction: MutableInstruction, launch: Launch, *, coalesced: bool
    ) -> tuple[int, Duration]:
        """Return the bytes that ``instruction`` reads in a kernel so launched, and the time."""
        reads = self._own_reads.setdefault(instruction, {})
        key = (launch.blocks, coalesced)
        if key not in reads:
            sizes, slots = self.costs.of(instruction).operand_bytes, _slots(instruction)
            bytes_read = 0
            read: Duration = 0
            for operand in instruction.operands:
                total = saturated(sizes[slots[operand]])
                bytes_read += total
                read += self._read(operand, total, launch, coalesced=coalesced)
            reads[key] = bytes_read, read
        return reads[key]

    def _pair_reads(
        self,
        producer: MutableInstruction,
        consumer: MutableInstruction,
        launch: Launch,
        *,
        coalesced: bool,
    ) -> tuple[int, Duration]:
        """Return the same for the two as one kernel: the reads of the consumer, with the changes
        that the producer makes. Times are whole ticks, so the order of addition does not matter.
        """
        bytes_read, read = self._reads(consumer, launch, coalesced=coalesced)
        shared = SharedReads(self.costs, producer, consumer)

        def count(operand: MutableInstruction, total: int, times: int) -> None:
            nonlocal bytes_read, read
            bytes_read += times * total
            read += times * self._read(operand, total, launch, coalesced=coalesced)

        for operand in elements_of(producer):
            if times := operand.users.slots(consumer):
                count(operand, shared.bytes_by_consumer(operand), -times)
        for operand in dict.fromkeys(producer.operands):
            if times := operand.users.slots(consumer):
                count(operand, shared.bytes_by_consumer(operand), -times)
                count(operand, shared.bytes_of(operand), times)
        for operand in added_parameters(producer, consumer):
            count(operand, shared.bytes_of(operand), 1)
        return bytes_read, read

    def _read(
        self, operand: MutableInstruction, total: int, launch: Launch, *, coalesced: bool
    ) -> Duration:
        size = shape_bytes(operand.shape)
        bits = operand.shape.bits if operand.shape.is_array else _OPAQUE_BITS
        key = (min(size, total), total, launch.blocks, 0 if coalesced else bits)
        duration = self._lookups.reads.get(key)
        if duration is None:  # a module has few sizes and few ways to read them
            utilization = coalescing_utilization(self.device, bits, coalesced=coalesced)
            duration = read_time(self.device, launch.blocks, key[0], total, utilization)
            self._lookups.reads[key] = duration
        return duration

    def _spoils_coalescing(self, part: MutableInstruction) -> bool:
        if part not in self._spoiling:
            self._spoiling[part] = spoils_coalescing(part)
        return self._spoiling[part]

    def _is_coalesced(self, emission: Emission, *parts: MutableInstruction) -> bool:
        """Source: coalescing_analysis.cc, IsReadCoalescedHeuristic."""
        if emission.kind is not EmitterKind.TRANSPOSE:
            for part in parts:
                if self._spoils_coalescing(part):
                    return False
        return not (
            emission.kind is EmitterKind.REDUCTION
            and len(parts) == 2
            and all(is_input_reduction(part, self.device, self._emitters) for part in parts)
        )


def _slots(instruction: MutableInstruction) -> dict[MutableInstruction, int]:
    """Return the first slot of each operand."""
    slots: dict[MutableInstruction, int] = {}
    for slot, operand in enumerate(instruction.operands):
        slots.setdefault(operand, slot)
    return slots


def _first_slot(instruction: MutableInstruction, operand: MutableInstruction) -> int | None:
    """Return the first slot in which an instruction reads ``operand``, or None."""
    return slots_of(instruction, operand)[0] if instruction in operand.users else None


class SharedReads:
    """The operands that a producer and its consumer share (GetSharedOperandBytesAccessed)."""

    def __init__(
        self, costs: CostAnalysis, producer: MutableInstruction, consumer: MutableInstruction
    ) -> None:
        self._costs = costs
        self._producer, self._consumer = producer, consumer
        self._own, self._other = costs.of(producer), costs.of(consumer)
        # The slots of the consumer that count. For a producer with several results only its
        # elements count, and such a producer is not fused, since its elements are not.
        self._places = [] if producer.is_multi_output else slots_of(consumer, producer)[:1]
        self.used = 0.0  # how often the consumer reads each element of the producer
        for place in self._places:
            self.used = f32(self.used + self._other.utilization[place])
        self._is_elementwise = is_elementwise(producer)

    def bytes_of(self, operand: MutableInstruction) -> int:
        slot = _first_slot(self._producer, operand)
        by_producer = common = 0
        if slot is not None:
            read_bytes = saturated(self._own.operand_bytes[slot])
            by_producer = round_to_int64(f32(f32(read_bytes) * self.used))
            share = self.common_utilization(slot)
            common = round_to_int64(f32(f32(shape_bytes(operand.shape)) * share))
        return wrap_int64(by_producer + self.bytes_by_consumer(operand) - common)

    def bytes_by_consumer(self, operand: MutableInstruction) -> int:
        """Return the bytes that the consumer itself reads of an operand."""
        slot = _first_slot(self._consumer, operand)
        return 0 if slot is None else saturated(self._other.operand_bytes[slot])

    def common_utilization(self, slot: int) -> float:
        """Return how much of the producer's operand in ``slot`` both read at the same time."""
        place = _first_slot(self._consumer, self._producer.operands[slot])
        return 0.0 if place is None else self._common_utilization(slot, place)

    def _common_utilization(self, slot: int, place: int) -> float:
        """Return how much of a shared operand, in these slots, both read at the same
        time.

        Source: GetCommonUtilization.
        """
        producer, consumer = self._producer, self._consumer
        if not self._is_elementwise:
            if producer.opcode != "fusion":
                return 0.0
            fused, costs = producer.fused, self._costs.of_fusion(producer)
            if costs.inside.common_utilization(fused.parameters[slot], fused.root) != 1.0:
                return 0.0
        if consumer.opcode != "fusion":
            return 1.0 if is_elementwise(consumer) else 0.0
        parameters, inside = consumer.fused.parameters, self._costs.of_fusion(consumer).inside
        total = 0.0
        for consumer_place in self._places:
            total = f32(
                total + inside.common_utilization(parameters[place], parameters[consumer_place])
            )
        return total


def is_input_reduction(instruction: MutableInstruction, device: Device, emitters: Emitters) -> bool:
    """Return whether an instruction is a reduction with a dedicated emitter, or a fusion that ends
    in one.

    Source: xla/service/gpu/gpu_fusible.cc, IsInputFusibleReduction.
    """
    if instruction.opcode != "fusion":
        return has_reduction_emitter(instruction, device)
    body = FusionBody(instruction)
    for root in part_roots(instruction):
        if root.opcode == "get-tuple-element":  # an element of a reduction of several arrays
            root = root.operands[0]
        hero = emitters.find_hero(body, root) if emitters.looks_above_roots else root
        if is_reduction_hero(root, hero, device):
            return True
    return False


def _of_tiling(tiling: Tiling | None) -> RunTime:
    if tiling is None:
        return _ENDLESS
    return RunTime(
        tiling.flops,
        tiling.bytes_read,
        tiling.bytes_written,
        tiling.read,
        tiling.write,
        tiling.compute,
        tiling.total,
        Launch(tiling.blocks, tiling.threads),
    )


_ENDLESS = RunTime(
    2**63 - 1, 2**63 - 1, 2**63 - 1, INFINITE, INFINITE, INFINITE, INFINITE, Launch(1, 1)
)
