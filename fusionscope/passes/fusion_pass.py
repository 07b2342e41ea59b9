"""What a fusion pass is, and how one is loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fusionscope.dump.fusion_passes import KnownPass, find_fusion_pass

if TYPE_CHECKING:
    from fusionscope.graph.mutable import MutableModule
    from fusionscope.passes.context import PassContext
    from fusionscope.passes.plan import FusionPlan
    from fusionscope.passes.rule import RuleBook


@dataclass(frozen=True, slots=True)
class FusionPass(ABC):
    """A pass as one version of the compiler has it: ``known`` is what files and records call it and
    what it is for, ``book`` its rules. Its folder defines ``Pass``, which says how it runs."""

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

    @abstractmethod
    def run(self, graph: MutableModule, context: PassContext) -> FusionPlan:
        """What the pass makes of ``graph``, which it changes.

        Raises ``UnusableInput`` where ``graph`` is none that the compiler makes.
        """


def load_passes(books: Iterable[RuleBook[Any]]) -> tuple[FusionPass, ...]:
    """The passes of which these are the rules."""
    return tuple(map(load_pass, books))


def load_pass(book: RuleBook[Any]) -> FusionPass:
    known = find_fusion_pass(book.pass_name, book.backend)
    found: FusionPass = import_module(f"fusionscope.passes.{known.place}").Pass(known, book)
    return found
