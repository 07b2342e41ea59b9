"""What a fusion pass is."""

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
    """A pass as one version of the compiler has it: ``known`` is what files and records call it and
    what it is for, ``book`` its rules. ``run.py`` in its folder is imported when it first runs."""

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
        """What the pass makes of ``graph``, which it changes.

        Raises ``UnusableInput`` where ``graph`` is none that the compiler makes.
        """
        replay: Replay = import_module(f"fusionscope.passes.{self.known.place}.run").run
        return replay(graph, self.book, context)


def load_passes(books: Iterable[RuleBook[Any]]) -> tuple[FusionPass, ...]:
    """The passes of which these are the rules."""
    return tuple(map(load_pass, books))


def load_pass(book: RuleBook[Any]) -> FusionPass:
    return FusionPass(find_fusion_pass(book.pass_name, book.backend), book)
