"""A fusion pass as a value: its names, its rules, and its replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fusionscope.dump.fusion_passes import KnownPass, find_fusion_pass

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableModule
    from fusionscope.passes.context import PassContext
    from fusionscope.passes.plan import FusionPlan
    from fusionscope.passes.rule import RuleBook

    Replay = Callable[[MutableModule, RuleBook[Any], PassContext], FusionPlan]


@dataclass(frozen=True, slots=True)
class FusionPass:
    """A pass of one compiler version. ``known`` holds its names in files and records and its
    purpose, ``book`` its rules. ``run.py`` in its folder is imported when it first runs.
    """

    known: KnownPass
    book: RuleBook[Any]

    @property
    def name(self) -> str:
        return self.known.name

    @property
    def backend(self) -> str:
        return self.known.backend

    def with_book(self, book: RuleBook[Any]) -> FusionPass:
        return replace(self, book=book)

    def run(self, graph: MutableModule, context: PassContext) -> FusionPlan:
        """Run the pass on ``graph``, which it changes.

        Raises ``UnusableInput`` if ``graph`` is not a module that the compiler makes.
        """
        replay: Replay = import_module(f"fusionscope.passes.{self.known.place}.run").run
        return replay(graph, self.book, context)


def passes_of(books: Iterable[RuleBook[Any]]) -> tuple[FusionPass, ...]:
    """Return the passes with these rules."""
    return tuple(map(pass_of, books))


def pass_of(book: RuleBook[Any]) -> FusionPass:
    return FusionPass(find_fusion_pass(book.pass_name, book.backend), book)
