"""Tries several changes at once, by the regions of a program that they concern."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fusionscope.advise.recipes.catalogue import in_order
from fusionscope.advise.recipes.flag_trials import FlagTrial
from fusionscope.advise.recipes.part_compiler import PartCompiler
from fusionscope.advise.recipes.recipe import Recipe
from fusionscope.advise.recipes.regions import cut_together, names_around
from fusionscope.advise.together import EXCLUDED, NOT_TRIED, Result
from fusionscope.facts.suggestions import Figures, HowTried, Suggestion, SuggestionKind
from fusionscope.hlo import Module


@dataclass(slots=True)
class RegionSets:
    """Tries changes of ``program``: ``recipes``, by their ids in any order, and ``flags`` as they
    were tried.

    Flags come first, each with those before. Recipes whose regions have an instruction in common
    are compiled in one region, and under the flags; the differences of others are added up.
    """

    program: Module
    compiler: PartCompiler
    recipes: Mapping[str, Recipe]
    flags: FlagTrial
    _around: dict[str, frozenset[str]] = field(default_factory=dict)

    def try_together(self, changes: Sequence[Suggestion]) -> Result:
        """Return what comes of ``changes``, or why that is unknown."""
        flags = [change for change in changes if change.kind is SuggestionKind.FLAG]
        recipes = [change for change in changes if change.kind is SuggestionKind.RECIPE]
        if sum(change.evidence is HowTried.REPLAYED for change in flags) > 1:
            return NOT_TRIED  # the best ones were replayed together
        total, options = self._with_flags(flags)
        groups = list(self._groups(recipes))
        for group in groups:
            for difference in self._differences(group, options):
                if total is None or isinstance(difference, str):
                    return difference if isinstance(difference, str) else NOT_TRIED
                total = total.plus_difference(*difference)
        is_compiled = (
            len(groups) == 1
            and self._is_whole(groups[0])
            and all(flag.evidence is HowTried.COMPILED for flag in flags)
        )
        return (
            (total, HowTried.COMPILED if is_compiled else HowTried.REGION) if total else NOT_TRIED
        )

    def _with_flags(self, flags: Sequence[Suggestion]) -> tuple[Figures | None, list[str]]:
        """Return the figures of the program with ``flags``, and the flags one by one."""
        total: Figures | None = self.flags.figures
        options: list[str] = []
        for flag in sorted(flags, key=lambda flag: flag.evidence is not HowTried.REPLAYED):
            words = flag.change.split()
            if not options:
                total = flag.after
            else:
                for part in self.flags.parts.get(flag.change, ()):
                    before = self.compiler.figures(part.module, options)
                    after = self.compiler.figures(part.module, [*options, *words])
                    if total is None or before is None or after is None:
                        return None, []
                    total = total.plus_difference(before, after, part.times)
            options += words
        return total, options

    def _differences(
        self, group: Sequence[Suggestion], options: Sequence[str]
    ) -> Iterator[tuple[Figures, Figures, int] | str]:
        """Yield the figures of each part without and with the recipes of a group, and how many
        equal parts there are, or why they are unknown.
        """
        if len(group) == 1 and not options:
            yield group[0].before, group[0].after, 1
            return
        recipes = in_order(self.recipes[change.change] for change in group)
        region = cut_together(
            recipes, self.program, self.compiler.backend, is_whole=self._is_whole(group)
        )
        for edit in region.edits if region is not None else ():
            before = self.compiler.figures(edit.before, options)
            after = self.compiler.figures(edit.after, options)
            yield (before, after, edit.times) if before and after else NOT_TRIED
        if region is None:
            yield EXCLUDED

    def _groups(self, recipes: Sequence[Suggestion]) -> Iterator[list[Suggestion]]:
        """Yield the recipes whose regions have instructions in common, directly or by others."""
        remaining = list(recipes)
        while remaining:
            group = [remaining.pop(0)]
            names = self._names(group[0])
            while near := [
                change for change in remaining if not names.isdisjoint(self._names(change))
            ]:
                group += near
                remaining = [change for change in remaining if change not in near]
                names = names.union(*map(self._names, near))
            yield group

    def _names(self, change: Suggestion) -> frozenset[str]:
        """Return the names of the instructions in the region of a recipe."""
        if change.change not in self._around:
            names = frozenset(instruction.name for instruction in self.program.walk())
            if change.evidence is not HowTried.COMPILED:
                names = names_around(
                    self.recipes[change.change], self.program, self.compiler.backend
                )
            self._around[change.change] = names
        return self._around[change.change]

    def _is_whole(self, group: Sequence[Suggestion]) -> bool:
        return any(change.evidence is HowTried.COMPILED for change in group)
