"""What the kernels of each pass cost with two releases: which of them made the difference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from fusionscope.facts.facts import Facts
from fusionscope.facts.suggestions import Figures
from fusionscope.facts.times import clock_for, figures_of, sum_up
from fusionscope.history.kernels import launches_of
from fusionscope.history.lineage import Lineage, read_lineage
from fusionscope.hlo import Instruction
from fusionscope.upgrade.figures import module_of
from fusionscope.versions.context import read_target

_PROGRAM = "the program"
_NOTHING = Figures(0, 0, 0.0)


class MakerChange(Facts, frozen=True):
    """The kernels that a pass made, which cost another amount.

    maker: the pass in which the kernels' instructions first appear, with its pipeline; ``the
        program`` if they are there from the beginning
    before: what its kernels cost in a run with the first release
    after: what its kernels cost in a run with the second release
    """

    maker: str
    before: Figures
    after: Figures

    @property
    def growth(self) -> tuple[float, int, int]:
        """The change of time in microseconds, of bytes, and of launches. Time is 0 if it is not
        known.
        """
        before, after = self.before, self.after
        time = 0.0
        if before.time_us is not None and after.time_us is not None:
            time = after.time_us - before.time_us
        return time, after.bytes_moved - before.bytes_moved, after.launches - before.launches


def compare_makers(before: Path, after: Path) -> tuple[MakerChange, ...]:
    """Return the passes whose kernels cost another amount in the second dump, those that grew most
    first. Raises ``UnusableInput`` if a stage contradicts itself.
    """
    (names, ours), (later_names, theirs) = _costs(before), _costs(after)
    changes = [
        MakerChange(name, ours.get(maker, _NOTHING), theirs.get(maker, _NOTHING))
        for maker, name in (names | later_names).items()
        if ours.get(maker, _NOTHING) != theirs.get(maker, _NOTHING)
    ]
    return tuple(sorted(changes, key=lambda change: change.growth, reverse=True))


def _costs(dump: Path) -> tuple[dict[str, str], dict[str, Figures]]:
    """Return the name of each pass with its pipeline, and what its kernels cost. Releases rename
    pipelines.
    """
    module = module_of(dump)
    lineage = read_lineage(module)
    kernels = launches_of(lineage.modules[-1], module.backend)
    clock = clock_for(lineage.modules[-1], module.backend, read_target(module))
    makers = _makers(lineage, (kernel.instruction for kernel in kernels))
    kernels_of = defaultdict(list)
    for kernel in kernels:
        kernels_of[makers[kernel.instruction]].append(kernel)
    costs: dict[str, Figures] = {}
    for maker, group in kernels_of.items():
        times = (
            [clock.time(kernel) for kernel in group] if clock is not None else [None] * len(group)
        )
        costs[maker] = figures_of(group, sum_up(group, times))
    labels = {stage.pass_name: stage.label for stage in lineage.stages[1:]}
    return {maker: labels.get(maker, maker) for maker in costs}, costs


def _makers(lineage: Lineage, kernels: Iterable[Instruction]) -> dict[Instruction, str]:
    """Return the pass that made each of ``kernels``, instructions of the last stage."""
    makers: dict[Instruction, str] = {}
    later = {kernel: [kernel] for kernel in kernels}
    for index in range(len(lineage.stages) - 2, -1, -1):
        now: dict[Instruction, list[Instruction]] = {}
        for instruction, group in later.items():
            earlier = _earlier(lineage, index, instruction)
            if earlier is None or earlier.opcode != instruction.opcode:
                makers |= dict.fromkeys(group, lineage.stages[index + 1].pass_name)
            else:
                now.setdefault(earlier, []).extend(group)
        later = now
    return makers | {kernel: _PROGRAM for group in later.values() for kernel in group}


def _earlier(lineage: Lineage, index: int, instruction: Instruction) -> Instruction | None:
    """Return what an instruction of stage ``index + 1`` was in stage ``index``."""
    if earlier := lineage.unchanged(index, instruction):
        return earlier
    return None if lineage.is_new(index, instruction) else lineage.earlier(index, instruction)
