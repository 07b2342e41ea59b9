"""The state of a GPU fusion pass that its rules read."""

from __future__ import annotations

from functools import cached_property

from fusionscope.dump.device import Device
from fusionscope.gpu.cost.model import CostModel, Lookups
from fusionscope.gpu.emitters import Emitters, is_generic_triton
from fusionscope.gpu.model import GpuModel
from fusionscope.gpu.reductions import has_reduction_emitter, normal_reduction
from fusionscope.gpu.triton import Triton
from fusionscope.graph.mutable import MutableInstruction
from fusionscope.graph.properties import is_elementwise, is_fusible
from fusionscope.hlo.shape import Shape

_BANKS = 32

# In addition to elementwise operations.
_FUSIBLE = frozenset(
    """broadcast concatenate dynamic-slice dynamic-update-slice gather iota pad reduce reduce-window
    reshape reverse scatter slice transpose""".split()
)


class GpuState:
    """A run over a module for a device: its cost model, and facts about instructions. ``lookups``
    are those of other runs, and not used if these were for another device or compiler.
    """

    def __init__(self, device: Device, gpu_model: GpuModel, lookups: Lookups | None = None) -> None:
        if lookups is not None and lookups.target != (device, gpu_model.costs_on(device)):
            lookups = None
        self.device = device
        self.gpu_model = gpu_model
        self.emitters = gpu_model.emitters
        self.triton = Triton(device, gpu_model.triton)
        self.model = CostModel(
            device,
            gpu_model.max_unroll,
            self.triton,
            gpu_model.emitters,
            gpu_model.formulas,
            lookups,
        )
        self._facts: dict[MutableInstruction, Facts] = {}

    def facts(self, instruction: MutableInstruction) -> Facts:
        facts = self._facts.get(instruction)
        if facts is None:
            facts = self._facts[instruction] = Facts(instruction, self.device, self.emitters)
        return facts

    def find_tiling_problem(
        self,
        producer: MutableInstruction,
        consumer: MutableInstruction,
        *,
        writes_producer: bool = False,
    ) -> str | None:
        """Return why Triton cannot tile the two together; None if it can."""
        return self.triton.find_tiling_problem(
            self.triton.identity(producer, consumer, writes_producer=writes_producer),
            lambda: self.model.find_tiling(producer, consumer, writes_producer=writes_producer),
        )

    def changed(self, instruction: MutableInstruction, *, has_outputs: bool = False) -> None:
        """Discard what is known of ``instruction``, which has changed, as in ``CostModel``."""
        self._facts.pop(instruction, None)
        self.triton.changed(instruction)
        self.model.changed(instruction, has_outputs=has_outputs)


class Facts:
    """Facts about one instruction that rules ask for, computed on demand."""

    def __init__(self, instruction: MutableInstruction, device: Device, emitters: Emitters) -> None:
        self._instruction = instruction
        self._device = device
        self._emitters = emitters

    @property
    def _inside(self) -> list[MutableInstruction]:
        """The instruction itself, or the instructions in a fusion."""
        instruction = self._instruction
        return list(instruction.fused.instructions) if is_fusion(instruction) else [instruction]

    @cached_property
    def is_fusible(self) -> bool:
        return is_priority_fusible(self._instruction)

    @cached_property
    def is_fusible_bitcast(self) -> bool:
        return is_fusible_bitcast(self._instruction)

    @cached_property
    def buffers(self) -> int:
        """Outputs, and the tuples that hold them. Source: ShapeUtil::SubshapeCount."""
        return _count_buffers(self._instruction.shape)

    @cached_property
    def shared_memory(self) -> int:
        """The shared memory of its kernel, in bytes. Source: SharedMemoryUsageNoCache."""
        may_tile = self._emitters.tiles_copies or self._instruction.holds("reduce", "transpose")
        if not may_tile:
            return 0
        return sum(_shared_memory(inner, self._device, self._emitters) for inner in self._inside)

    @cached_property
    def reductions(self) -> int:
        """The reductions with a dedicated emitter. Source: NumUnnestedReductionsNoCache."""
        if not self._instruction.holds("reduce"):
            return 0
        return sum(has_reduction_emitter(inner, self._device) for inner in self._inside)

    @cached_property
    def largest_reduction(self) -> int:
        """The most elements that a reduction in it reduces to one, or 0."""
        if not self._instruction.holds("reduce"):
            return 0
        return max((_reduced_elements(inner) for inner in self._inside), default=0)


def is_fusion(instruction: MutableInstruction) -> bool:
    return instruction.opcode == "fusion"


def is_priority_fusible(instruction: MutableInstruction) -> bool:
    """Source: priority_fusion.cc, IsFusible."""
    if not is_fusible(instruction):
        return False
    if is_elementwise(instruction) or is_fusible_bitcast(instruction):
        return True
    if is_fusion(instruction):
        return instruction.fusion_kind != "kCustom" or is_generic_triton(instruction)
    return instruction.opcode in _FUSIBLE


def is_fusible_bitcast(instruction: MutableInstruction) -> bool:
    """Return whether it is a bitcast between elements of one size (IsFusibleBitcast)."""
    return instruction.opcode == "bitcast" and (
        _bits(instruction.shape) == _bits(instruction.operands[0].shape)
    )


def _bits(shape: Shape) -> int:
    """Return the bits of an element. Booleans count as one bit, whatever their size in memory."""
    return 1 if shape.element_type == "pred" else shape.bits


def is_scatter(instruction: MutableInstruction) -> bool:
    """Return whether it is a scatter, or a fusion that ends in one (IsInputFusibleScatter)."""
    if instruction.opcode == "scatter":
        return True
    return (
        is_fusion(instruction)
        and instruction.fusion_kind == "kInput"
        and instruction.fused.root.opcode == "scatter"
    )


def _count_buffers(shape: Shape) -> int:
    return 1 + sum(_count_buffers(element) if element.elements else 1 for element in shape.elements)


def _shared_memory(instruction: MutableInstruction, device: Device, emitters: Emitters) -> int:
    if has_reduction_emitter(instruction, device):
        inputs = instruction.operands[: len(instruction.operands) // 2]
        size = sum(-(-source.shape.bits // 8) for source in inputs)
        if normal_reduction(instruction).is_row:
            return _BANKS * size
        return emitters.column_elements * size
    transpose = emitters.tiled_transpose(instruction)
    return transpose.shared_memory if transpose is not None else 0


def _reduced_elements(instruction: MutableInstruction) -> int:
    if instruction.opcode != "reduce" or not instruction.shape.is_array:
        return 0
    results = instruction.shape.element_count
    return instruction.operands[0].shape.element_count // results if results else 0
