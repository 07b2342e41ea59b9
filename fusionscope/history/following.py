"""Follows values through the stages of a module, from the one before fusion to the final one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import NamedTuple

from fusionscope.dump import DumpedModule, Stage
from fusionscope.errors import UnusableInput
from fusionscope.history.values import NumberedModule, Numbering
from fusionscope.hlo import Module
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


@dataclass(frozen=True, slots=True)
class Route:
    """The stages of ``module`` to number: from ``before`` to ``final``. ``base`` is one of them,
    whose contents are needed too. ``notes`` gets a line for each stage that cannot be read.
    """

    module: DumpedModule
    before: Stage
    final: Stage
    base: Stage
    notes: list[str]
    progress: Progress = silent


def follow(route: Route) -> FollowedStages:
    """Number the stages. Except for the final one, a stage that cannot be read is omitted.

    Raises ``UnusableInput`` if the first or the final stage cannot be read.
    """
    return _Followed(route).go_on(_steps(route), Numbering())


def follow_both(first_route: Route, second_route: Route) -> Iterator[FollowedStages]:
    """Do as ``follow`` for two dumps, one after the other: what only the first needs is free before
    the second is followed, if the caller keeps none of it. The stages that both have in the
    beginning are numbered once.

    Raises ``UnusableInput`` like ``follow``.
    """
    first, second = _Followed(first_route), _Followed(second_route)
    ours, theirs = _steps(first_route), _steps(second_route)
    numbering = Numbering()
    apart: list[list[_Step]] = [[], []]
    for pair in zip_longest(ours, theirs):
        step, second_step = pair
        if step is None or second_step is None or not step.is_like(second_step):
            apart = [[single] if single is not None else [] for single in pair]
            break
        second.add(second_step, first.number(step, numbering))
    forked = numbering.fork()
    yield first.go_on(chain(apart[0], ours), numbering)
    del first, numbering
    yield second.go_on(chain(apart[1], theirs), forked)


class _Step(NamedTuple):
    """``has_contents`` is whether the contents of its kernels are needed."""

    stage: Stage
    module: Module
    has_contents: bool

    def is_like(self, counterpart: _Step) -> bool:
        return self.module is counterpart.module and self.has_contents == counterpart.has_contents


def _steps(route: Route) -> Iterator[_Step]:
    module, final = route.module, route.final
    yield _Step(route.before, module.read(route.before), has_contents=True)
    stages_needed = {*module.fusion_stages, final, route.base}
    following = module.stages[module.stages.index(route.before) + 1 :]
    for stage in counted(following, "following values through stage", route.progress):
        if stage.is_final and stage is not final:
            continue
        try:
            current = module.read(stage)
            current.check()
        except UnusableInput as error:
            if stage is final:
                raise
            route.notes.append(str(error))
            continue
        yield _Step(stage, current, stage in stages_needed)
        if stage is final:
            break


class _Followed:
    """The stages of a route that are numbered so far."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._steps: list[tuple[_Step, NumberedModule]] = []

    def add(self, step: _Step, numbered: NumberedModule) -> None:
        self._steps.append((step, numbered))

    def number(self, step: _Step, numbering: Numbering) -> NumberedModule:
        """Add a stage. Returns its values: those of the stage before if nothing has changed."""
        numbered = self._steps[-1][1] if self._steps else None
        if (
            numbered is None
            or step.has_contents
            or step.module.bodies != self._steps[-1][0].module.bodies
        ):
            numbered = numbering.number(step.module, contents=step.has_contents)
        self.add(step, numbered)
        return numbered

    def go_on(self, steps: Iterable[_Step], numbering: Numbering) -> FollowedStages:
        """Add the rest."""
        self._steps = [(step, numbering.adopt(numbered)) for step, numbered in self._steps]
        for step in steps:
            self.number(step, numbering)
        route = self._route
        passes = {*route.module.fusion_stages, route.final} - {route.before}
        numbered_by_stage = {step.stage: numbered for step, numbered in self._steps}
        first = self._steps[0][1]
        return FollowedStages(
            first,
            numbered_by_stage.get(route.base, first),
            tuple(
                (stage.label, numbered_stage)
                for stage, numbered_stage in numbered_by_stage.items()
                if stage in passes
            ),
        )
