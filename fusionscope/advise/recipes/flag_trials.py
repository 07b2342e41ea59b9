"""Tries a flag on the parts of a program that it concerns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from fusionscope.advise.recipes.compiled import CompiledEdit, changed_figures
from fusionscope.advise.recipes.part_compiler import PartCompiler
from fusionscope.advise.recipes.regions import Part
from fusionscope.advise.split_products import FlagOffer, sums_of_parts
from fusionscope.facts.result import PairFacts
from fusionscope.facts.suggestions import Figures, HowTried, Suggestion
from fusionscope.hlo import Module


@dataclass(frozen=True, slots=True)
class FlagTrial:
    """``figures`` are those of the whole module without flags. ``parts`` are those on which flags
    were tried, by the change.
    """

    figures: Figures
    compiler: PartCompiler
    parts: dict[str, Sequence[Part]] = field(default_factory=dict)

    def run(
        self, offer: FlagOffer, program: Module, refused: Iterable[PairFacts]
    ) -> Suggestion | None:
        """Return what came of a flag, from all of ``program``, or if that is beyond the limit, from
        parts of it that are compiled as they are in it; None if there are none within the limit.
        """
        for parts in offer.partitions(program):
            edits = self._with_flags(parts, offer)
            if edits is not None:
                self.parts[offer.candidate.change] = parts
                how = HowTried.COMPILED if parts[0].module is program else HowTried.REGION
                changed = changed_figures(self.figures, edits)
                suggestion = offer.suggestion(how, refused, self.figures, changed)
                why_not = self.compiler.why_not_certain(edits, suggestion)
                return replace(suggestion, why_not=why_not)
        return None

    def _with_flags(self, parts: Sequence[Part], offer: FlagOffer) -> list[CompiledEdit] | None:
        """Return what ``parts`` compile to without and with the flags of ``offer``; None if they
        are beyond the limit, or are not split as the module is.
        """
        modules = [part.module for part in parts]
        if not self.compiler.is_affordable(modules, (), offer.flags):
            return None
        if sum(part.times * self._sums(part.module) for part in parts) != offer.sums:
            return None
        edits = []
        for part in parts:
            before = self.compiler.contents(part.module)
            after = self.compiler.contents(part.module, offer.flags)
            if before is None or after is None:
                return None
            edits.append(CompiledEdit(before, after, part.times))
        return edits

    def _sums(self, program: Module) -> int:
        """Return how many products of ``program`` are split."""
        final = self.compiler.compile(program)
        return 0 if final is None else sum(1 for _ in sums_of_parts(final))
