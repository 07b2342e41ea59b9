"""The input of a pass besides the module: the compilation target and flags."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fusionscope.progress import Progress, silent

if TYPE_CHECKING:
    from fusionscope.dump.device import Device
    from fusionscope.gpu.cost.model import Lookups
    from fusionscope.gpu.model import GpuModel
    from fusionscope.gpu.state import GpuState
    from fusionscope.passes.gpu.priority_fusion.branches import Branch
    from fusionscope.passes.gpu.priority_fusion.computation import Step
    from fusionscope.passes.gpu.priority_fusion.recorded_order import FollowedRecord, RecordedOrder


class OutOfTime(Exception):
    """A replay that was given a deadline did not end before it."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time by ``clock``, in seconds, at which a replay has to give up. The clock is by default
    the processor time of this process.
    """

    end: float
    clock: Callable[[], float] = time.process_time

    def check(self) -> None:
        """Raise ``OutOfTime`` if it is over."""
        if self.clock() > self.end:
            raise OutOfTime


@dataclass(slots=True, eq=False)
class Work:
    """The ``amount`` of work that a run of priority fusion was so far: the producers that it
    scored, and the instructions that it copied into fusions. The same on a slow machine and on a
    busy one.
    """

    amount: int = 0
    most: float = math.inf

    def add(self, amount: int) -> None:
        """Count more of it. Raises ``OutOfTime`` if it is more than the most."""
        self.amount += amount
        if self.amount > self.most:
            raise OutOfTime


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTarget:
    """The compilation target of GPU passes, with the compiler's model of it as the flags change it.

    ``ids`` are the unique ids of instructions before priority fusion, by computation and name.
    ``users`` are the ordered users of instructions, by name. Both are incomplete if the dump is.
    ``recorded`` is the part of a record's order to follow; ``has_record`` is whether there is a
    record to compare with. With ``followed``, the main pass does what the record has.
    ``lookups`` are what all runs share that have the same device and model.
    """

    device: Device
    gpu_model: GpuModel
    ids: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    users: Mapping[str, Sequence[str]] = field(default_factory=dict)
    recorded: RecordedOrder | None = None
    has_record: bool = False
    followed: FollowedRecord | None = None
    lookups: Lookups | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PassContext:
    """The flags of a module that its passes depend on.

    ``ynn_types`` are the enabled types of library fusions. ``has_emitters`` is whether the fusion
    emitters are enabled, ``has_multi_output`` whether multi-output fusion runs. ``gpu`` is the
    target, or None for a CPU. ``deadline`` ends the run of a pass that takes long, None for no
    limit. ``branches`` are changed rules that follow a run of priority fusion, whose ``work`` is
    counted. ``steps`` collects its steps by computation; ``given_steps`` are those that it takes in
    some, without asking why. The decisions of a plan are complete only if it ``tells_decisions``.
    ``progress`` receives each step of a replay.
    """

    ynn_types: frozenset[str] = frozenset({"INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION", "REDUCE"})
    has_emitters: bool = True
    has_multi_output: bool = False
    gpu: GpuTarget | None = None
    deadline: Deadline | None = None
    branches: tuple[Branch, ...] = field(default=(), compare=False, repr=False)
    steps: dict[str, Sequence[Step]] | None = field(default=None, compare=False, repr=False)
    given_steps: Mapping[str, Sequence[Step]] = field(
        default_factory=dict, compare=False, repr=False
    )
    work: Work | None = field(default=None, compare=False, repr=False)
    tells_decisions: bool = True
    progress: Progress = field(default=silent, compare=False, repr=False)

    @property
    def target(self) -> GpuTarget:
        """The compilation target of GPU passes."""
        assert self.gpu is not None, "a pass for GPUs, in the context of a CPU"
        return self.gpu

    def gpu_state(self) -> GpuState:
        """Return a new state, for one run of a pass."""
        from fusionscope.gpu.state import GpuState

        return GpuState(self.target.device, self.target.gpu_model, self.target.lookups)
