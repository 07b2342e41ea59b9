"""How long a GPU that is not here would take, by the compiler's own cost model."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.dump import DumpedModule
from fusionscope.gpu.cost.duration import TICKS_PER_MICROSECOND
from fusionscope.gpu.cost.memory import KERNEL_LAUNCH
from fusionscope.gpu.emitters import is_generic_triton
from fusionscope.gpu.state import GpuState
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.history.kernels import Kernel, KernelKind, find_kernels
from fusionscope.history.values import Numbering
from fusionscope.hlo import Module
from fusionscope.passes.context import GpuTarget
from fusionscope.versions.context import read_context


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Microseconds of all kernels that the model is for, with their launches, and the launches of
    other ones, such as a library's, of which it says nothing. A loop whose length the compiler does
    not know counts once."""

    microseconds: float
    unknown_launches: int


def estimate(final: Module, target: GpuTarget) -> TimeEstimate:
    """Of one run of ``final``. Raises ``UnusableInput`` where that contradicts itself."""
    model = GpuState(target.device, target.gpu_model).model
    by_name = {each.name: each for each in MutableModule(final).walk()}
    ticks = unknown = 0.0
    for kernel in find_kernels(Numbering().number(final), "gpu"):
        instruction = by_name[kernel.name]
        if _is_modelled(kernel, instruction):
            ticks += kernel.runs * (KERNEL_LAUNCH + model.time(instruction).total)
        else:
            unknown += kernel.runs
    return TimeEstimate(ticks / TICKS_PER_MICROSECOND, int(unknown))


def estimate_final(module: DumpedModule) -> TimeEstimate | None:
    """Of the final module of a dump; None where that is for no GPU, or not there. Raises
    ``UnusableInput``."""
    gpu = read_context(module).gpu if module.backend == "gpu" else None
    return None if gpu is None or module.final is None else estimate(module.read(module.final), gpu)


def _is_modelled(kernel: Kernel, instruction: MutableInstruction) -> bool:
    if kernel.kind is KernelKind.OPERATION:
        return instruction.opcode == "copy"
    if kernel.kind not in (KernelKind.FUSION, KernelKind.WRAPPED):
        return False
    if instruction.is_custom_fusion:
        return is_generic_triton(instruction)
    return True
