"""What a pass receives besides the module: the compilation target and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fusionscope.dump.device import Device

if TYPE_CHECKING:
    from fusionscope.gpu.model import GpuModel
    from fusionscope.gpu.state import GpuState
    from fusionscope.passes.gpu.priority_fusion.run import RecordedOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTarget:
    """What the passes compiled for, with the compiler's model of it as the flags change it.
    ``ids`` are the unique ids of instructions before priority fusion, by computation and name,
    ``users`` those of instructions in their order by name, both as far as the dump has them;
    ``recorded`` is as much of the order of a record as is to be followed, ``has_record`` whether
    there is one to compare with."""

    device: Device
    gpu_model: GpuModel
    ids: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    users: Mapping[str, Sequence[str]] = field(default_factory=dict)
    recorded: RecordedOrder | None = None
    has_record: bool = False


@dataclass(frozen=True, slots=True)
class PassContext:
    """The flags of a module, as far as its passes depend on them.

    ``ynn_types`` are the types of library fusions that are on, ``has_emitters`` whether the
    emitters of fusions are, ``has_multi_output`` whether multi-output fusion runs. ``gpu`` is what
    was compiled for, None where that was no GPU.
    """

    ynn_types: frozenset[str] = frozenset({"INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION", "REDUCE"})
    has_emitters: bool = True
    has_multi_output: bool = False
    gpu: GpuTarget | None = None

    @property
    def target(self) -> GpuTarget:
        """What a pass for GPUs compiles for."""
        assert self.gpu is not None, "a pass for GPUs, in the context of a CPU"
        return self.gpu

    def gpu_state(self) -> GpuState:
        """A fresh one, for one run of a pass."""
        from fusionscope.gpu.state import GpuState

        return GpuState(self.target.device, self.target.gpu_model)
