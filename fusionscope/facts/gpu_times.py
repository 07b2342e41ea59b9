"""Times of the kernels of a GPU: the compiler's own model where it applies, else floors."""

from __future__ import annotations

from math import isfinite

from fusionscope.facts.clock import Clock, KernelTime, Machine
from fusionscope.facts.result import TimeSource
from fusionscope.gpu.cost.duration import TICKS_PER_NANOSECOND
from fusionscope.gpu.cost.memory import KERNEL_LAUNCH
from fusionscope.gpu.cost.model import RunTime
from fusionscope.gpu.emitters import is_generic_triton
from fusionscope.gpu.state import GpuState, is_priority_fusible
from fusionscope.graph.fusing import create_fusion
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.history.kernels import Kernel, KernelKind
from fusionscope.hlo import Instruction, Module
from fusionscope.passes.context import GpuTarget


class GpuClock(Clock):
    """The compiler's estimates for the kernels of one module where it has them, else floors."""

    def __init__(self, module: Module, target: GpuTarget) -> None:
        device = target.device
        machine = Machine(
            launch=KERNEL_LAUNCH / TICKS_PER_NANOSECOND,
            bandwidth=device.memory_bandwidth / 1e9,
            flops=2 * device.core_count * device.fpus_per_core * device.clock_rate_ghz,
            flops_per_transcendental=1.0,
        )
        super().__init__(machine, TimeSource.FLOOR)
        self._instructions = {
            instruction.name: instruction for instruction in MutableModule(module).walk()
        }
        self._model = GpuState(device, target.gpu_model, target.lookups).model
        # Matrix units count two flops for each multiply-add.
        self._matrix_rates = {
            unit.element_type: 2
            * device.core_count
            * unit.units_per_core
            * unit.ops_per_clock
            * unit.clock_rate_ghz
            for unit in device.matrix_units
        }

    def time(self, kernel: Kernel) -> KernelTime:
        instruction = _without_waiting(self._instructions[kernel.name])
        if _is_modelled(kernel, instruction):
            time = self._run_time(instruction)
            if isfinite(time.total):
                total, launch, *parts = (
                    ticks / TICKS_PER_NANOSECOND
                    for ticks in (
                        KERNEL_LAUNCH + time.total,
                        KERNEL_LAUNCH,
                        time.read,
                        time.write,
                        time.compute,
                    )
                )
                return KernelTime(total, TimeSource.MODEL, launch, *parts)
        return self.floor(kernel)

    def _run_time(self, instruction: MutableInstruction) -> RunTime:
        """Return the time of a kernel as it is emitted: of an operation that is not in a fusion yet
        but will be, which then reads equal operands once.
        """
        operands = instruction.operands
        if instruction.opcode == "fusion" or len(set(operands)) == len(operands):
            return self._model.time(instruction)
        fusion = create_fusion(instruction, "kLoop")
        time = self._model.time(fusion)
        fusion.computation.remove(fusion)
        return time

    def rate(self, instruction: Instruction) -> float:
        types = {operand.shape.element_type for operand in instruction.operands}
        return (
            max((self._matrix_rates.get(element_type, 0.0) for element_type in types), default=0.0)
            or self.machine.flops
        )


def _without_waiting(launch: MutableInstruction) -> MutableInstruction:
    """Return the fusion that an asynchronous ``launch`` starts, or else the launch itself."""
    if launch.opcode == "async-start" and launch.called[0].root.opcode == "fusion":
        return launch.called[0].root
    return launch


def _is_modelled(kernel: Kernel, instruction: MutableInstruction) -> bool:
    """Return whether XLA emits the kernel, so that its model applies."""
    if instruction.is_custom_fusion:
        return is_generic_triton(instruction)
    if kernel.kind is KernelKind.OPERATION:
        return is_priority_fusible(instruction)
    return kernel.kind in (KernelKind.FUSION, KernelKind.WRAPPED)
