"""What kernels need of the values that they read: the least, from which bounds of times follow.

Whatever is not sure counts as less: a bound must hold for every program that the compiler could
make of the same operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import NamedTuple

from fusionscope.facts.bounds import Bounds, Handed, Product
from fusionscope.facts.clock import Clock, KernelTime, limits_of
from fusionscope.facts.result import TimeSource
from fusionscope.history.contents import content_of, share_beside, sorted_dimension
from fusionscope.history.handoffs import OUTSIDE, Handoffs, How, LoopState, find_handoffs
from fusionscope.history.kernels import Kernel, count_runs
from fusionscope.history.loops import LoopFacts
from fusionscope.history.operations import flatten
from fusionscope.history.traffic import traffic
from fusionscope.history.values import NumberedModule
from fusionscope.hlo import Instruction
from fusionscope.hlo.search import reachable

_PASSES = 3  # over all kernels; more could only find more that is needed


class Read(NamedTuple):
    """A place that a kernel reads: the share of its elements that one run reads, the share of their
    width that it needs, and whether it hands them on unchanged, so that its readers decide.
    """

    place: int
    elements: float
    width: float
    is_handed_on: bool
    is_updated: bool


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel: what it reads, the loops in whose steps it picks other elements, and whether it
    needs the same share of its operands as is needed of its results. ``sorted_along`` is the
    dimension that it sorts, None for none.
    """

    reads: tuple[Read, ...]
    picking: frozenset[int]
    is_proportional: bool
    sorted_along: int | None


def find_needs(
    numbered: NumberedModule,
    kernels: Sequence[Kernel],
    times: Sequence[KernelTime | None],
    clock: Clock | None,
    loops: LoopFacts,
) -> Needs | None:
    """Return what the kernels of a module need; None unless a GPU or TPU is known."""
    gpu_times = [
        time for time in times if time is not None and time.source is not TimeSource.NOMINAL
    ]
    if clock is None or not gpu_times or len(gpu_times) < len(kernels):
        return None
    handoffs = find_handoffs(numbered, kernels, count_runs(numbered, loops))
    return Needs(handoffs, kernels, gpu_times, clock)


def needed_bytes(
    numbered: NumberedModule, kernels: Sequence[Kernel], clock: Clock, loops: LoopFacts
) -> float:
    """Return the bytes that a run must read and write: those of one kernel for all."""
    handoffs = find_handoffs(numbered, kernels, count_runs(numbered, loops))
    bounds = Needs(handoffs, kernels, [clock.time(kernel) for kernel in kernels], clock).bounds
    return bounds.bytes_of(frozenset(n for n, kernel in enumerate(kernels) if kernel.runs))


@dataclass(frozen=True, slots=True)
class LoopNeeds:
    """A loop and the kernels in it: the least microseconds in a run if each step is one kernel, and
    the bytes of state that these then read and write, which could stay on the chip.
    """

    loop: Instruction
    kernels: tuple[int, ...]
    by_step_us: float
    state_bytes: float


class Needs:
    """What is needed of each place: a share of its elements, and of their width.

    Sources of a state are found in an order that no loop has, so what is needed is counted in
    passes, from nothing on.
    """

    def __init__(
        self,
        handoffs: Handoffs,
        kernels: Sequence[Kernel],
        times: Sequence[KernelTime],
        clock: Clock,
    ) -> None:
        self.handoffs, self.kernels, self._times = handoffs, kernels, times
        self._clock = clock
        self.launches = [_launch(handoffs, number, kernel) for number, kernel in enumerate(kernels)]
        self._elements = [0.0] * len(handoffs.places)
        self._shares = [0.0] * len(kernels)
        self._rows = self._rows_read()
        self.width = [0.0] * len(handoffs.places)
        self._factors = [1.0] * len(kernels)  # by which the model counts fewer bytes
        for _ in range(_PASSES):
            self._pass()
        limits = (limits_of(kernel, time) for kernel, time in zip(kernels, times, strict=True))
        self.bounds = Bounds(
            launch_us=max(time.launch for time in times) / 1_000,
            bytes_per_us=clock.machine.bandwidth * 1_000,
            limits=tuple(limit for limit in limits if limit is not None),
            running=frozenset(n for n, kernel in enumerate(kernels) if kernel.runs),
            handed=tuple(self._handed()),
            products=tuple(self._products()),
        )

    def _pass(self) -> None:
        elements = [0.0] * len(self._elements)
        for result in self.handoffs.results:
            for place, _ in self.handoffs.origins(result):
                elements[place] = self.width[place] = 1.0
        before, self._elements = self._elements, elements
        for number in reversed(range(len(self.kernels))):
            if not self.kernels[number].runs:
                continue
            share = self._shares[number] = self._share(number, before)
            for read in self.launches[number].reads:
                portion, width = share * self._covered(number, read), self._width_of(number, read)
                for place, _ in self.handoffs.origins(read.place):
                    elements[place] = min(1.0, elements[place] + portion)
                    self.width[place] = max(self.width[place], width)

    def _share(self, number: int, before: Sequence[float] | None = None) -> float:
        """Return the share of what a kernel computes that is needed."""
        shares = [
            max(self._elements[place], before[place] if before is not None else 0.0)
            for place in self.handoffs.outputs[number]
        ]
        least = min((share for share in shares if share), default=0.0)
        if not self.handoffs.outputs[number] or least > 1 - 1e-9:
            return 1.0
        if self.launches[number].is_proportional:
            return least
        return max(
            (self._shares[n] * share for n, share in self._rows.get(number, ())), default=0.0
        )

    def _rows_read(self) -> dict[int, list[tuple[int, float]]]:
        """Return what reads slices of the rows of kernels that sort them, and the share of the rows
        of which it reads some: a sort needs all of each of them.
        """
        rows: dict[int, list[tuple[int, float]]] = defaultdict(list)
        places = self.handoffs.places
        for number, kernel in enumerate(self.kernels):
            for slot, (operand, read) in enumerate(self.handoffs.reads[number]):
                origins = {place for value in read for place, _ in self.handoffs.origins(value)}
                same = (places[p] for p in origins if places[p].shape == operand.shape)
                for maker in {place.maker for place in same} - {OUTSIDE}:
                    along = self.launches[maker].sorted_along
                    if along is not None:
                        share = share_beside(kernel.instruction, slot, along)
                        rows[maker].append((number, share))
        return rows

    def _covered(self, number: int, read: Read) -> float:
        """Return the share of the elements of one value that all runs together read."""
        launch = self.launches[number]
        place = self.handoffs.places[read.place]
        loops = (launch.picking & self.handoffs.around[number]) - place.loops
        return min(1.0, read.elements * self.handoffs.repetitions(loops))

    def _width_of(self, number: int, read: Read) -> float:
        if not read.is_handed_on:
            return read.width
        outputs = self.handoffs.outputs[number]
        return max([read.width, *(self.width[place] for place in outputs)])

    def _handed(self) -> Iterator[Handed]:
        """Yield the values that pass between launches."""
        places, bandwidth = self.handoffs.places, self._clock.machine.bandwidth
        readers: list[dict[int, float]] = [{} for _ in places]
        for number, kernel in enumerate(self.kernels):
            sizes = self._sizes(number)
            most = kernel.runs * self._times[number].read * bandwidth
            factor = self._factors[number] = min(1.0, most / (fsum(sizes.values()) or 1.0))
            for place, size in sizes.items():
                readers[place][number] = size * factor
        for result in self.handoffs.results:
            for place, instances in self.handoffs.origins(result):
                if places[place].maker != OUTSIDE:
                    size = instances * places[place].shape.byte_size * self.width[place]
                    readers[place][OUTSIDE] = size
        bytes_written = self._bytes_written()
        for place, sizes in enumerate(readers):
            if sizes and not places[place].sources:
                size = bytes_written.get(place, 0.0)
                yield Handed(place, places[place].maker, size, tuple(sizes.items()))

    def _sizes(self, number: int) -> dict[int, float]:
        """Return the bytes that all runs of a kernel need, by where they come from."""
        sizes: dict[int, float] = {}
        if not self.kernels[number].runs:
            return sizes
        share = self._share(number)
        for read in self.launches[number].reads:
            if read.is_updated:
                continue
            portion = share * self._covered(number, read) * self._width_of(number, read)
            for place, instances in self.handoffs.origins(read.place):
                size = instances * portion * self.handoffs.places[place].shape.byte_size
                sizes[place] = max(sizes.get(place, 0.0), size)
        return sizes

    def too_wide(self, number: int) -> Iterator[tuple[int, float, str]]:
        """Yield the places that a kernel only reads to convert them to a narrower type, the bytes
        that it would not read if they had that, and the type.
        """
        kernel = self.kernels[number]
        for slot, (_, places) in enumerate(self.handoffs.reads[number]):
            width = content_of(kernel.instruction).widths[slot]
            if width.element_type and not width.is_handed_on and len(places) == 1:
                size = traffic(kernel.instruction).operands.get(
                    kernel.instruction.operands[slot], 0
                )
                yield places[0], (1 - width.share) * size * kernel.runs, width.element_type

    @cached_property
    def steps(self) -> tuple[LoopNeeds, ...]:
        """What each loop needs if it runs one kernel in each step."""
        bytes_written = self._bytes_written()
        kernels: dict[int, list[int]] = defaultdict(list)
        for kernel, around in enumerate(self.handoffs.around):
            for loop in around if self.kernels[kernel].runs else ():
                kernels[loop].append(kernel)
        return tuple(
            self._step(number, self.handoffs.loops[number], inside, bytes_written)
            for number, inside in sorted(kernels.items())
        )

    def _step(
        self, number: int, loop: LoopState, kernels: Sequence[int], bytes_written: dict[int, float]
    ) -> LoopNeeds:
        """Return what a loop needs; the values of its state enter and leave each step."""
        state = frozenset(flatten(loop.state))
        read: dict[int, float] = {}
        for kernel in kernels:
            for place, size in self._read_in_step(number, kernel, state):
                read[place] = max(read.get(place, 0.0), size)
        changed = {
            place: size
            for place in state
            if (size := self._written_in_step(loop, place, frozenset(kernels), bytes_written))
        }
        size = fsum(read.values()) + fsum(changed.values())
        carried = fsum(changed[place] + read[place] for place in changed.keys() & read.keys())
        computing = self.bounds.computing(frozenset(kernels)) / loop.runs
        step_us = self.bounds.launch_us + max(size / self.bounds.bytes_per_us, computing)
        return LoopNeeds(loop.loop, tuple(kernels), loop.runs * step_us, loop.runs * carried)

    def _read_in_step(
        self, loop: int, kernel: int, state: Collection[int]
    ) -> Iterator[tuple[int, float]]:
        """Yield the places of the state that a kernel reads in a step, and the bytes."""
        places, around = self.handoffs.places, self.handoffs.around[kernel]
        launch, factor = self.launches[kernel], self._factors[kernel]
        for read in launch.reads:
            if read.is_updated:
                continue
            loops = frozenset(inner for inner in launch.picking & around if inner > loop)
            elements = min(1.0, read.elements * self.handoffs.repetitions(loops))
            share = self._share(kernel) * elements * self._width_of(kernel, read) * factor

            def earlier(place: int) -> Iterator[int]:
                sources = () if place in state else places[place].sources
                return (source.place for source in sources)

            for place in reachable([read.place], earlier):
                if place in state:
                    yield place, share * places[place].shape.byte_size

    def _written_in_step(
        self,
        loop: LoopState,
        place: int,
        kernels: Collection[int],
        bytes_written: Mapping[int, float],
    ) -> float:
        """Return the bytes of an element of the state that a step writes and somebody needs."""
        places = self.handoffs.places
        size = 0.0
        for source in places[place].sources:
            for origin, _ in self.handoffs.origins(source.place):
                if source.how is How.CARRIED and places[origin].maker in kernels:
                    share = self._elements[origin] * self.width[origin]
                    whole = places[origin].shape.byte_size
                    size = max(size, min(bytes_written[origin] / loop.runs, share * whole))
        return size

    def _bytes_written(self) -> dict[int, float]:
        """Return the bytes that are written of each place in all runs, at most."""
        bandwidth = self._clock.machine.bandwidth
        bytes_written: dict[int, float] = {}
        for number, kernel in enumerate(self.kernels):
            sizes = dict(self._writes(number))
            most = kernel.runs * self._times[number].write * bandwidth
            factor = min(1.0, most / (fsum(sizes.values()) or 1.0))
            bytes_written.update((place, size * factor) for place, size in sizes.items())
        return bytes_written

    def _writes(self, number: int) -> Iterator[tuple[int, float]]:
        places, repetitions = self.handoffs.places, self.handoffs.repetitions
        outputs = self.handoffs.outputs[number]
        launch = self.launches[number]
        whole = sum(places[place].shape.byte_size for place in outputs) or 1
        share = 1.0
        if any(read.is_updated for read in launch.reads):
            share = min(1.0, self.kernels[number].bytes_written / whole)
        for place in outputs:
            loops = places[place].loops
            if share < 1:
                loops = loops & (launch.picking | (loops - self.handoffs.around[number]))
            yield place, share * places[place].shape.byte_size * repetitions(loops)

    def _products(self) -> Iterator[Product | None]:
        """Yield the products of each kernel."""
        keys: dict[frozenset[int], int] = {}
        for number, kernel in enumerate(self.kernels):
            # The model counts no operations of a product that an emitter of its own does not make.
            time = self._clock.products(kernel) if kernel.runs else 0.0
            time = min(time, self._times[number].compute)
            outputs = self.handoffs.outputs[number]
            share = min((self._elements[place] for place in outputs), default=1.0)
            if not time or not share:
                yield None
                continue
            loops = frozenset().union(*(self.handoffs.places[place].loops for place in outputs))
            key = keys.setdefault(kernel.values, len(keys))
            yield Product(key, time * share * self.handoffs.repetitions(loops) / 1_000)


def _launch(handoffs: Handoffs, number: int, kernel: Kernel) -> Launch:
    operands = handoffs.reads[number]
    content = content_of(kernel.instruction)
    moved = traffic(kernel.instruction)
    reads = []
    picking: frozenset[int] = frozenset()
    for slot, (operand, places) in enumerate(operands):
        if slot in content.indices:
            picking = picking.union(*(handoffs.places[place].loops for place in places))
        if len(places) == 1 and (whole := operand.shape.byte_size):
            share = min(1.0, moved.operands.get(operand, 0) / whole)
            width, is_handed_on, _ = content.widths[slot]
            updated = operand in moved.updated
            reads.append(Read(places[0], share, width, is_handed_on, updated))
    along = sorted_dimension(kernel.instruction) if "sort" in kernel.operations else None
    return Launch(tuple(reads), picking, content.is_proportional, along)
