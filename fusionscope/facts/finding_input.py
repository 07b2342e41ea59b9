"""What findings are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.dump import DumpedModule, Stage
    from fusionscope.facts.module_analysis import KernelDetails
    from fusionscope.facts.needed_bytes import Needs
    from fusionscope.facts.result import KernelFacts, PairFacts
    from fusionscope.history.kernels import Kernel
    from fusionscope.history.values import NumberedModule
    from fusionscope.passes.context import GpuTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingInput:
    """A module of a dump, with what every explanation knows of it.

    ``stages`` are those from the one before fusion to the final one, ``first`` and ``last`` these
    two with their values numbered. ``kernels`` are those of the final stage, ``details`` what they
    read and write, and ``pairs`` all pairs. ``gpu`` is what it was compiled for, None for a CPU or
    if that is unknown, and ``needs`` what the kernels need then. ``prices_all`` is whether values
    that several kernels compute are priced however many there are.
    """

    module: DumpedModule
    stages: Sequence[Stage]
    first: NumberedModule
    last: NumberedModule
    kernels: Sequence[tuple[Kernel, KernelFacts]]
    details: Sequence[KernelDetails]
    pairs: Sequence[PairFacts]
    gpu: GpuTarget | None
    needs: Needs | None
    prices_all: bool

    @property
    def kernel_facts(self) -> list[KernelFacts]:
        return [facts for _, facts in self.kernels]
