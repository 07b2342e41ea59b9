"""The fusion passes of one backend in one compiler version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fusionscope.dump.fusion_passes import PRIORITY_FUSION, Purpose, Record
from fusionscope.errors import UnusableInput
from fusionscope.passes.fusion_pass import FusionPass
from fusionscope.passes.overrides import Allowed, Forbidden
from fusionscope.passes.rule import Rule, RuleBook

if TYPE_CHECKING:
    from fusionscope.gpu.model import GpuModel

# Cleanup passes: a pass after them works on the result of the pass before them.
_JOINING = "cse"
_CLEANING = frozenset({_JOINING, "dce"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """The fusion passes of one backend. ``passes`` are in the order in which they run, with the
    rules of this version.

    ``pipelines`` are the passes of the fusion pipelines, in order, as far as they can leave a
    stage; they show where a pass ran that changed nothing. ``gpu`` is the model of a GPU, with
    default flags, or None for a CPU. ``compared_records`` are the passes whose recorded decisions
    are compared one by one. ``release`` is the one whose dumps the rules were checked against.
    ``unseen`` are passes that did nothing in any of these. ``makes_functions`` is whether it makes
    functions of loops of any size.
    """

    name: str
    release: str
    passes: tuple[FusionPass, ...]
    pipelines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gpu: GpuModel | None = None
    compared_records: frozenset[Record] = frozenset({Record.INSTRUCTION_FUSION})
    unseen: frozenset[str] = frozenset()
    makes_functions: bool = False

    @property
    def backend(self) -> str:
        return self.name.partition("-")[0]

    @property
    def books(self) -> tuple[RuleBook[Any], ...]:
        return tuple(fusion_pass.book for fusion_pass in self.passes)

    @property
    def has_priority_fusion(self) -> bool:
        return any(fusion_pass.name == PRIORITY_FUSION for fusion_pass in self.passes)

    @property
    def main_pass(self) -> str:
        """The pass that decides on most pairs: the first that respects the user's overrides."""
        return next(
            fusion_pass.name for fusion_pass in self.passes if fusion_pass.known.takes_overrides
        )

    @property
    def deciding(self) -> tuple[str, ...]:
        """The passes that decide on single pairs, in their order."""
        purposes = (Purpose.DECIDES, Purpose.LIBRARY)
        return tuple(
            fusion_pass.name for fusion_pass in self.passes if fusion_pass.known.purpose in purposes
        )

    @property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """Groups of passes that run directly one after the other, the group of the main pass first.
        Between two groups the compiler runs many other passes.
        """
        names = {
            fusion_pass.name
            for fusion_pass in self.passes
            if fusion_pass.known.purpose is not Purpose.WRAPS
        }
        chains: list[tuple[str, ...]] = []
        for passes in self.pipelines.values():
            chain: list[str] = []
            for name in (*passes, ""):
                if name in names:
                    chain.append(name)
                elif name not in _CLEANING and chain:
                    chains.append(tuple(chain))
                    chain = []
        main = self.main_pass
        return tuple(sorted(chains, key=lambda chain: main not in chain))

    @property
    def cleaned(self) -> frozenset[str]:
        """The passes after which the compiler cleans up."""
        return frozenset(
            name
            for passes in self.pipelines.values()
            for name, following in pairwise(passes)
            if following == _JOINING
        )

    def find(self, name: str) -> FusionPass:
        """Return the pass of that name. Raises ``UnusableInput`` if there is none."""
        for fusion_pass in self.passes:
            if fusion_pass.name == name:
                return fusion_pass
        raise UnusableInput(f"the rules {self.name} have no pass {name}")

    def find_rule(self, id: str) -> Rule | None:
        return next((rule for book in self.books if (rule := book.find(id)) is not None), None)

    def with_overrides(self, forbidden: Forbidden, allowed: Allowed) -> Compiler:
        """Return the compiler with a user's overrides before all rules of the passes that ask
        them. The passes that only keep pairs apart ask the first one.
        """
        both = tuple(rule for rule in (forbidden, allowed) if rule.patterns)

        def changed(fusion_pass: FusionPass) -> FusionPass:
            if fusion_pass.known.takes_overrides:
                return fusion_pass.with_book(fusion_pass.book.with_first(both))
            if fusion_pass.known.keeps_apart and forbidden.patterns:
                return fusion_pass.with_book(fusion_pass.book.with_first((forbidden,)))
            return fusion_pass

        return replace(self, passes=tuple(map(changed, self.passes)))

    def without(self, *names: str) -> Compiler:
        """Return the compiler without the passes of these names."""
        passes = tuple(item for item in self.passes if item.name not in names)
        return replace(self, passes=passes)

    def with_books(self, *books: RuleBook[Any]) -> Compiler:
        """Return the compiler with each of ``books`` instead of its pass's own."""
        new = {book.pass_name: book for book in books}
        return replace(
            self,
            passes=tuple(
                fusion_pass.with_book(new[fusion_pass.name])
                if fusion_pass.name in new
                else fusion_pass
                for fusion_pass in self.passes
            ),
        )
