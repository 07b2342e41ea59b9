"""Times of the kernels of a TPU: the compiler's own estimate where it writes one, else floors.

The estimate is the ``estimated_cycles`` of a kernel (``facts/window_config.py``) at the clock of
the device. It includes what starts the kernel. Copies, custom calls and collectives have none: at
least, their bytes pass through HBM at its full bandwidth. What runs beside other kernels takes what
is left of that after them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusionscope.dump.tpu_chips import CHIPS, TpuChip
from fusionscope.dump.tpu_target import TpuTarget
from fusionscope.facts.clock import Clock, KernelTime, Machine
from fusionscope.facts.result import TimeSource
from fusionscope.facts.window_config import window_config_of
from fusionscope.graph.properties import leaves
from fusionscope.history.kernels import Kernel
from fusionscope.history.traffic import traffic
from fusionscope.hlo import Instruction, Module, Shape

# Memory spaces beside HBM (0): vector memory, flags of copies, and the common memory of a v4.
_ON_CHIP = frozenset({1, 2, 3})
_CODE = "retry_config"  # in the ``backend_config`` of kernels for which code was generated
_CONTROL_FLOW = frozenset({"call", "conditional", "while"})


def tpu_clock(module: Module, target: TpuTarget) -> TpuClock | None:
    """Return what gives the times of the kernels of ``module``, which was compiled for ``target``;
    None if the device is not known, or before there is code: estimates come with that.
    """
    chip = CHIPS.get(target.name)
    return TpuClock(chip) if chip is not None and any(map(_has_code, module.walk())) else None


class TpuClock(Clock):
    """The compiler's estimates for the kernels of one module where it has them, else floors."""

    def __init__(self, chip: TpuChip) -> None:
        machine = Machine(
            launch=0.0,
            bandwidth=chip.bandwidth,
            flops=chip.flops,
            flops_per_transcendental=1.0,
        )
        super().__init__(machine, TimeSource.FLOOR)
        self._clock_ghz = chip.clock_ghz
        self._cycles: dict[Instruction, int | None] = {}

    def time(self, kernel: Kernel) -> KernelTime:
        read, write = (size / self.machine.bandwidth for size in _bytes_of_hbm(kernel))
        cycles = self._cycles_of(kernel.instruction)
        if cycles is None:
            return self._floor(kernel.instruction, read, write)
        total = cycles / self._clock_ghz
        compute = min(total, self.products(kernel))
        return KernelTime(total, TimeSource.MODEL, 0.0, read, write, compute)

    def _floor(self, launch: Instruction, read: float, write: float) -> KernelTime:
        left = max(read + write - self._time_beside(launch), 0.0)
        return KernelTime(left, TimeSource.FLOOR, 0.0, read, write)

    def _time_beside(self, launch: Instruction) -> float:
        """Return the nanoseconds of the kernels between an asynchronous launch and its end."""
        if not launch.opcode.endswith("-start"):
            return 0.0
        cycles = 0
        for instruction in until_done(launch):
            if instruction.opcode in _CONTROL_FLOW:
                return float("inf")  # that may take longer
            cycles += self._cycles_of(instruction) or 0
        return cycles / self._clock_ghz

    def _cycles_of(self, launch: Instruction) -> int | None:
        if launch not in self._cycles:
            self._cycles[launch] = _estimated_cycles(launch)
        return self._cycles[launch]


def until_done(launch: Instruction) -> Iterator[Instruction]:
    """Yield the instructions after ``launch`` in the order of the schedule, to the one that waits
    for it.
    """
    started = {launch}
    for instruction in launch.computation.instructions[launch.index + 1 :]:
        if started.intersection(instruction.operands):
            if not instruction.opcode.endswith("-update"):
                return
            started.add(instruction)
        yield instruction


def _has_code(launch: Instruction) -> bool:
    return _estimated_cycles(launch) is not None or _CODE in launch.statement.attributes


def _estimated_cycles(launch: Instruction) -> int | None:
    config = window_config_of(launch)
    return config.cycles if config is not None else None


def _bytes_of_hbm(kernel: Kernel) -> tuple[int, int]:
    """Return the bytes that one run reads from HBM and writes to it, at most."""
    launch = kernel.instruction
    read = sum(
        min(size, _bytes_in_hbm([operand.shape]))
        for operand, size in traffic(launch).operands.items()
    )
    return read, min(kernel.bytes_written, _bytes_in_hbm(_results(launch)))


def _results(launch: Instruction) -> Sequence[Shape]:
    """Return what a launch writes: the result of an asynchronous one also holds its operands."""
    if launch.opcode == "async-start" and launch.called:
        return [launch.called[0].root.shape]
    if launch.opcode == "copy-start":
        return launch.shape.elements[:1]
    if launch.opcode in ("all-gather-start", "collective-permute-start"):
        return launch.shape.elements[1:2]
    return [launch.shape]


def _bytes_in_hbm(shapes: Sequence[Shape]) -> int:
    arrays = [array for shape in shapes for array in leaves(shape)]
    return sum(array.byte_size for array in arrays if not _is_on_chip(array))


def _is_on_chip(array: Shape) -> bool:
    return array.layout is not None and array.layout.memory_space in _ON_CHIP
