"""The fusion passes of one backend of one version of the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fusionscope.dump.fusion_passes import PRIORITY_FUSION, Purpose, Record
from fusionscope.errors import UnusableInput
from fusionscope.passes.fusion_pass import FusionPass
from fusionscope.passes.rule import Rule, RuleBook

if TYPE_CHECKING:
    from fusionscope.gpu.model import GpuModel

# They tidy up, so that a pass behind them works on what the pass before them left.
_CLEANING = frozenset({"cse", "dce"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """``passes`` in the order in which they run, with the rules of this version.

    ``pipelines`` are the passes of the pipelines that fuse, in their order, as far as they can
    leave a stage: they tell where a pass ran that changed nothing. ``gpu`` is what it takes a GPU
    for, with its flags as they are by default, None for a CPU. ``compared_records`` are those whose
    decisions a replay makes one by one. ``release`` is the one whose dumps the rules were checked
    against, and ``unseen`` are passes that did nothing in any of these.
    """

    name: str
    release: str
    passes: tuple[FusionPass, ...]
    pipelines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gpu: GpuModel | None = None
    compared_records: frozenset[Record] = frozenset({Record.INSTRUCTION_FUSION})
    unseen: frozenset[str] = frozenset()

    @property
    def backend(self) -> str:
        return self.name.partition("-")[0]

    @property
    def books(self) -> tuple[RuleBook[Any], ...]:
        return tuple(each.book for each in self.passes)

    @property
    def has_priority_fusion(self) -> bool:
        return any(each.name == PRIORITY_FUSION for each in self.passes)

    @property
    def main_pass(self) -> str:
        """The pass that decides on most pairs: the first that asks what the user overrides."""
        return next(each.name for each in self.passes if each.known.takes_overrides)

    @property
    def deciding(self) -> tuple[str, ...]:
        """The passes that decide on single pairs, in their order."""
        purposes = (Purpose.DECIDES, Purpose.LIBRARY)
        return tuple(each.name for each in self.passes if each.known.purpose in purposes)

    @property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """Passes that run one upon the other, the chain of the main pass first: between two chains
        the compiler does much else."""
        names = {each.name for each in self.passes if each.known.purpose is not Purpose.WRAPS}
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

    def find(self, name: str) -> FusionPass:
        """The pass of that name. Raises ``UnusableInput`` where there is none."""
        for each in self.passes:
            if each.name == name:
                return each
        raise UnusableInput(
            f"the chosen rules are those of {self.backend}, which has no pass {name}"
        )

    def find_rule(self, id: str) -> Rule | None:
        return next((rule for book in self.books if (rule := book.find(id)) is not None), None)

    def with_first(self, rules: tuple[Rule, ...]) -> Compiler:
        """``rules`` are asked before all others, where pairs are asked of."""
        return replace(
            self,
            passes=tuple(
                each.with_book(each.book.with_first(rules)) if each.known.takes_overrides else each
                for each in self.passes
            ),
        )

    def with_books(self, *books: RuleBook[Any]) -> Compiler:
        """Each of ``books`` in the place of the one of its pass."""
        new = {book.pass_name: book for book in books}
        return replace(
            self,
            passes=tuple(
                each.with_book(new[each.name]) if each.name in new else each for each in self.passes
            ),
        )
