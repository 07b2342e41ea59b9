"""What the replay of a pass yields."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.hlo import Module
from fusionscope.rules.graph import MutableModule, to_module
from fusionscope.rules.rule import Decision


@dataclass(frozen=True, slots=True)
class Considered:
    """What was decided of a pair when the pass came to it; ``fusion`` is what the two became, None
    where they were not fused. Names are those of that moment: ``consumer`` may be a fusion that the
    pass made. ``is_recorded`` is false where the compiler decides without a word."""

    computation: str
    producer: str
    consumer: str
    decision: Decision
    fusion: str | None = None
    is_recorded: bool = True


@dataclass(slots=True, eq=False)
class FusionPlan:
    """What a pass did. ``decisions`` are those on all pairs in their order.

    ``graph`` is what the pass worked on, as it left it: it knows in which order the users of an
    instruction came, which no text shows.
    """

    pass_name: str
    decisions: tuple[Considered, ...]
    graph: MutableModule
    _module: Module | None = None

    @property
    def module(self) -> Module:
        """The module after the pass; to be asked for before another pass works on ``graph``."""
        if self._module is None:
            self._module = to_module(self.graph)
        return self._module
