"""Follows values through the stages of a module, from the one before fusion to the final one."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput
from fusionscope.history.values import NumberedModule, Numbering
from fusionscope.progress import Progress, counted, silent


@dataclass(frozen=True, slots=True)
class FollowedStages:
    """Stages with their values numbered alike. ``after_passes`` are those after fusion passes, by
    their labels; the final one is the last.
    """

    first: NumberedModule
    base: NumberedModule
    after_passes: tuple[tuple[str, NumberedModule], ...]

    @property
    def last(self) -> NumberedModule:
        return self.after_passes[-1][1]


def follow(
    module: DumpedModule,
    before: Stage,
    final: Stage,
    base: Stage,
    notes: list[str],
    progress: Progress = silent,
) -> FollowedStages:
    """Number the stages from ``before`` to ``final``; ``base`` is one of them, whose contents are
    needed too.

    Except for the final stage, a stage that cannot be read is omitted and noted. Raises
    ``UnusableInput`` if the first or the final stage cannot be read.
    """
    numbering = Numbering()
    first = numbering.number(module.read(before))
    passes = set(module.fusion_stages) | {final}
    following = module.stages[module.stages.index(before) + 1 :]
    stages: list[tuple[str, NumberedModule]] = []
    latest, latest_read = first, module.read(before)
    numbered_base = first
    for stage in counted(following, "following values through stage", progress):
        if stage.is_final and stage is not final:
            continue
        try:
            current = module.read(stage)
        except UnusableInput as error:
            if stage is final:
                raise
            notes.append(str(error))
            continue
        contents = stage in passes or stage is base
        if contents or current.bodies != latest_read.bodies:
            latest, latest_read = numbering.number(current, contents=contents), current
        if stage is base:
            numbered_base = latest
        if stage in passes:
            stages.append((stage.label, latest))
        if stage is final:
            break
    return FollowedStages(first, numbered_base, tuple(stages))
