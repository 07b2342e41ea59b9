"""The result of replaying a pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fusionscope.dump import Stage
from fusionscope.graph.mutable import MutableInstruction, MutableModule, to_module
from fusionscope.hlo import Module
from fusionscope.passes.rule import Decision

if TYPE_CHECKING:
    from fusionscope.gpu.cost.duration import Duration
    from fusionscope.gpu.cost.model import PairCost


@dataclass(frozen=True, slots=True)
class PassRun:
    """One run of a pass. ``after`` is None if it changed nothing, which leaves no file."""

    pass_name: str
    before: Stage
    after: Stage | None


class PairDecision(NamedTuple):
    """The decision on a pair when the pass reached it. ``fusion`` is the result, or None if the
    pair was not fused. Names are those of that moment: ``consumer`` may be a fusion that the pass
    formed. ``is_recorded`` is whether the compiler's records have the decision too. ``cost`` holds
    the times that were compared, if any.
    """

    computation: str
    producer: str
    consumer: str
    decision: Decision
    fusion: str | None = None
    is_recorded: bool = False
    cost: PairCost | None = None


def decided(
    producer: MutableInstruction,
    consumer: MutableInstruction,
    decision: Decision,
    fusion: MutableInstruction | None = None,
    *,
    is_recorded: bool = False,
) -> PairDecision:
    """Return the decision on a pair of the consumer's computation."""
    names = consumer.computation.name, producer.name, consumer.name
    return PairDecision(*names, decision, fusion.name if fusion else None, is_recorded)


@dataclass(frozen=True, slots=True)
class Scored:
    """A priority for ``producer``, as the compiler records it: both times may be differences to
    earlier ones. Durations are ticks of 0.25 ns.
    """

    producer: str
    consumers: tuple[str, ...]
    fused: Duration
    unfused: Duration


@dataclass(frozen=True, slots=True)
class Refused:
    """The refusal of ``producer``, which cannot be fused into all of its consumers. ``consumer`` is
    the first that refuses it; ``others`` are the reasons of later ones.
    """

    producer: str
    consumer: str
    decision: Decision
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Merged:
    """The fusion of ``producer`` into ``consumer``, which became ``fusion``."""

    fusion: str
    producer: str
    consumer: str


Event = Scored | Refused | Merged


class Followed(NamedTuple):
    """How many steps of a record a replay followed, and how many differ from what rules and stages
    say.
    """

    steps: int
    differing: int


@dataclass(slots=True, eq=False)
class FusionPlan:
    """The result of a pass. ``decisions`` are those on all pairs, in order; ``events`` are the
    steps of priority fusion, ``followed`` those of the record that was followed, if any.

    ``graph`` is the changed module. It has the order of users, which no text shows.
    """

    pass_name: str
    decisions: tuple[PairDecision, ...]
    graph: MutableModule
    events: tuple[Event, ...] = ()
    followed: Followed | None = None
    _module: Module | None = None

    @property
    def module(self) -> Module:
        """Return the module after the pass. Call it before another pass changes ``graph``."""
        if self._module is None:
            self._module = to_module(self.graph)
        return self._module
