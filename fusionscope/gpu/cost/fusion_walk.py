"""The walk through a fusion, from its root to its parameters, for the GPU cost model.

Source: HloCostAnalysis::HandleFusion and FusionCalculateUtilizations in
xla/service/hlo_cost_analysis.cc and xla/service/gpu/model/gpu_hlo_cost_analysis.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from fusionscope.gpu.cost.numbers import add_product, f32, to_int64
from fusionscope.graph.mutable import MutableComputation, MutableInstruction

# The instructions inside a fusion from which on an instruction is read element by element.
_Roots = dict[MutableInstruction, None]
_EXACT = 2**24  # up to where sums of whole 32-bit floats do not depend on their order


@dataclass(slots=True, eq=False)
class Costs:
    """The costs of one instruction: flops, bytes written, and for each operand the bytes read and
    its utilization (elements read over its elements). ``ir_size`` is the number of instructions
    emitted.
    """

    flops: float
    output_bytes: float
    operand_bytes: list[float]
    utilization: list[float]
    ir_size: float = 1.0


@dataclass(slots=True, eq=False)
class _Reads:
    """How one instruction inside the fusion is read: from which roots on and, if it is such a root
    itself, its utilization and how often it is emitted.
    """

    roots: _Roots = field(default_factory=dict)
    utilization: float = 0.0
    size: int = 0


@dataclass(slots=True, eq=False)
class _Step:
    """One instruction that is not a parameter. ``flops`` and ``ir_size`` are the sums over all
    steps up to this one. ``undo`` holds how its operands were read before it.
    """

    instruction: MutableInstruction
    flops: float
    ir_size: float
    undo: list[tuple[_Reads, _Roots, float, int]]


class FusionWalk:
    """The sums over the instructions of a fusion, and how each of them is read.

    Users come before their operands, in the compiler's order, since sums are rounded to 32 bits.
    When a fusion has grown, all steps before the first reader of a new instruction are kept.
    Parameters read nothing, so they are not steps.
    """

    def __init__(
        self,
        fused: MutableComputation,
        costs_of: Callable[[MutableInstruction], Costs],
        passes_elements_on: Callable[[MutableInstruction], bool],
        *,
        rounds_products: bool,
    ) -> None:
        self._fused = fused
        self._costs_of = costs_of
        self._passes_elements_on = passes_elements_on
        self._rounds_products = rounds_products
        self.emitted: dict[MutableInstruction, float] = {}
        self.used: dict[MutableInstruction, float] = {}
        self.flops = 0.0
        self.ir_size = 0.0
        self._order: list[MutableInstruction] = []
        self._followed = 0  # how much of the fusion's growth is in the order
        self._steps: list[_Step] = []
        self._places: dict[MutableInstruction, int] = {}  # of the instructions in the steps
        self._reads: dict[MutableInstruction, _Reads] = {}

    def common_utilization(self, first: MutableInstruction, second: MutableInstruction) -> float:
        """Return how much of ``first`` is used together with ``second``, both inside the fusion.

        Source: CommonElementwiseUtilization.
        """
        total = 0.0
        roots = self._reads[second].roots
        for root in self._reads[first].roots:
            if root in roots:
                total = f32(total + self._reads[root].utilization)
        return total

    def update(self, in_place: Collection[MutableInstruction]) -> None:
        """Bring all sums up to date with the contents of the fusion. ``in_place`` are its dynamic
        updates that write into their operand.
        """
        unchanged = self._follow_growth()
        if unchanged is None:
            self._start()
        else:
            self._undo(unchanged)
        position = (
            self._order.index(self._steps[-1].instruction) if self._steps else len(self._order)
        )
        for current in reversed(self._order[:position]):
            if current.opcode != "parameter":
                self._take(current, is_in_place=current in in_place)
        self._sum_up()

    def _start(self) -> None:
        root = self._fused.root
        self._order = self._fused.post_order()
        self._followed = len(self._fused.growth)
        self._steps, self._places = [], {}
        self._reads = {instruction: _Reads() for instruction in self._order}
        self._reads[root] = _Reads({root: None}, 1.0, 1)
        self.used, self.emitted = {}, {}

    def _follow_growth(self) -> int | None:
        """Insert the instructions that the fusion took in into the order. Return how many steps are
        still valid, or None if the growth of the fusion does not determine that.
        """
        order, reads = self._order, self._reads
        if not order or order[-1] is not self._fused.root:
            return None
        unchanged = len(self._steps)
        for parameter, instruction, operands in self._fused.growth[self._followed :]:
            if parameter not in reads:
                return None
            place = order.index(parameter)
            above = []
            for operand in dict.fromkeys(operands):
                if operand in reads:
                    old_place = order.index(operand)
                    if old_place < place:
                        continue
                    del order[old_place]
                above.append(operand)
            order[place : place + 1] = [*above, instruction]
            del reads[parameter]
            for reader in (*above, instruction):
                reads.setdefault(reader, _Reads())
            readers = [self._places[user] for user in instruction.users if user in self._places]
            unchanged = min(unchanged, *readers) if readers else unchanged
        self._followed = len(self._fused.growth)
        return unchanged if len(order) == len(self._fused.instructions) else None

    def _undo(self, unchanged: int) -> None:
        while len(self._steps) > unchanged:
            step = self._steps.pop()
            del self._places[step.instruction]
            for reads, roots, utilization, size in reversed(step.undo):
                reads.roots, reads.utilization, reads.size = roots, utilization, size

    def _take(self, current: MutableInstruction, *, is_in_place: bool) -> None:
        share, emitted = self._tell_reads(current)
        costs = self._costs_of(current)
        undo: list[tuple[_Reads, _Roots, float, int]] = []
        if self._passes_elements_on(current):
            roots = self._reads[current].roots
            for operand in current.operands:
                reads = self._reads[operand]
                if reads.roots is not roots:
                    undo.append((reads, reads.roots, reads.utilization, reads.size))
                    reads.roots = reads.roots | roots if reads.roots else roots
        else:
            for slot, operand in enumerate(current.operands):
                reads = self._reads[operand]
                undo.append((reads, reads.roots, reads.utilization, reads.size))
                reads.roots = reads.roots | {operand: None}
                part = 0.0 if slot == 0 and is_in_place else costs.utilization[slot]
                elements = operand.shape.element_count
                read = 0.0
                if elements:
                    read = f32(f32(share * part) * f32(elements))
                    if math.isfinite(read):
                        read = f32(math.ceil(read) / elements)
                reads.utilization = f32(reads.utilization + read)
                reads.size = to_int64(f32(f32(reads.size) + emitted))
        flops, ir_size = self._sums
        flops = add_product(flops, share, costs.flops, rounds_product=self._rounds_products)
        self._places[current] = len(self._steps)
        self._steps.append(_Step(current, flops, f32(ir_size + emitted), undo))

    @property
    def _sums(self) -> tuple[float, float]:
        """The flops and the number of instructions emitted, summed over all steps."""
        return (self._steps[-1].flops, self._steps[-1].ir_size) if self._steps else (0.0, 0.0)

    def _tell_reads(self, current: MutableInstruction) -> tuple[float, float]:
        """Record and return how much of an instruction is used, and how often it is emitted."""
        share = emitted = 0.0
        for root in self._reads[current].roots:
            reads = self._reads[root]
            share = f32(share + reads.utilization)
            emitted = f32(emitted + reads.size)
        self.used[current], self.emitted[current] = share, emitted
        return share, emitted

    def _sum_up(self) -> None:
        """Add the parameters. Only the sum of emitted instructions can depend on their position."""
        self.flops, self.ir_size = self._sums
        for parameter in self._fused.parameters:
            share, emitted = self._tell_reads(parameter)
            self.flops = add_product(self.flops, share, 0.0, rounds_product=self._rounds_products)
            self.ir_size = f32(self.ir_size + emitted)
        if not self.ir_size < _EXACT:
            self.ir_size = 0.0
            for current in reversed(self._order):
                self.ir_size = f32(self.ir_size + self.emitted[current])
