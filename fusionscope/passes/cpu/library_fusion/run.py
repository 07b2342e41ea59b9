"""Replays the pass that gives operations to a library.

Source: xla/backends/cpu/transforms/library_rewriter.cc.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from fusionscope.graph.fusing import (
    create_fusion,
    fuse_consumer,
    fuse_instruction,
    merge_fusion,
    take_out_root,
)
from fusionscope.graph.mutable import (
    MutableComputation,
    MutableInstruction,
    MutableModule,
)
from fusionscope.passes.causes import LibrarySeveralUsers
from fusionscope.passes.context import PassContext
from fusionscope.passes.cpu.library_fusion.rules import (
    Grow,
    Individual,
    Preferred,
    Starters,
    TrailingMoves,
)
from fusionscope.passes.operation import OperationRule
from fusionscope.passes.plan import FusionPlan, PairDecision
from fusionscope.passes.rule import Decision, Rule, RuleBook, first_decision

_KIND, _NAME = "__ynn_fusion", "ynn_fusion"
_UP, _DOWN = "up", "down"


def run(graph: MutableModule, book: RuleBook[Rule], context: PassContext) -> FusionPlan:
    return LibraryRewriter(graph, book, context.ynn_types).run()


def _applies(caller: MutableInstruction) -> bool:
    """Return whether it applies a computation to elements. Source: HloInstruction::has_to_apply."""
    if caller.opcode == "custom-call":
        return len(caller.called) == 1
    return caller.opcode != "call" and "to_apply" in caller.attributes


@dataclass(slots=True)
class LibraryRewriter:
    """The pass over ``graph``, with the rules of ``book``. ``types`` are the enabled types of
    fusions, such as ``REDUCE``.
    """

    graph: MutableModule
    book: RuleBook[Rule]
    types: frozenset[str]
    _taken: set[MutableInstruction] = field(default_factory=set)
    _decisions: list[PairDecision] = field(default_factory=list)

    def run(self) -> FusionPlan:
        for computation in self.graph.post_order():
            if not computation.is_fused and not any(map(_applies, computation.callers)):
                self._taken = set()
                self._run_in(computation)
        return FusionPlan(self.book.pass_name, tuple(self._decisions), self.graph)

    def _run_in(self, computation: MutableComputation) -> None:
        starters, individual = self.book.find(Starters.id), self.book.find(Individual.id)
        trailing, preferred = self.book.find(TrailingMoves.id), self.book.find(Preferred.id)
        if not isinstance(starters, Starters):
            return
        turns: tuple[list[MutableInstruction], list[MutableInstruction]] = ([], [])
        for instruction in reversed(computation.post_order()):
            turn = starters.starts(instruction, self.types)
            if turn is not None:
                turns[turn].append(instruction)
        for starter in (*turns[0], *turns[1]):
            if starter in self._taken:
                continue
            decision = self._supports(starter)
            if decision.allow and isinstance(preferred, Preferred):
                # A fusion may move any amount of data, but such an operation does not begin one.
                decision = preferred.check(starter) or decision
            name = starter.name
            if not decision.allow:
                self._decide(computation, name, name, decision)
                continue
            self._taken.add(starter)
            grows = not isinstance(individual, Individual) or individual.grows(starter, self.types)
            fusion = create_fusion(starter, "kCustom", _NAME, backend_kind=_KIND)
            computation.replace(starter, fusion)
            self._decide(computation, name, name, decision, fusion)
            grown: MutableInstruction | None = fusion
            while grows and grown is not None:
                fusion, grown = grown, self._grow(grown)
            while isinstance(trailing, TrailingMoves) and trailing.takes_out(fusion.fused.root):
                moved = fusion.fused.root.origin
                take_out_root(fusion)
                self._decide(computation, fusion.name, moved, trailing.refuse())
            self._tell_left_out(fusion, None if grows else individual)

    def _tell_left_out(self, fusion: MutableInstruction, individual: Rule | None) -> None:
        """Record why neighbours that no rule was asked about stayed outside: the fusion holds one
        operation, they have (or it has) other users, or it is full.
        """
        grow = self.book.find(Grow.id)
        size = len(fusion.fused.instructions)
        neighbours = [
            *((operand, fusion.name) for operand in fusion.operands),
            *((fusion, user.name) for user in fusion.users),
        ]
        for value, consumer in neighbours:
            producer = value.name
            if individual is not None:
                self._decide(fusion.computation, producer, consumer, individual.refuse())
            elif len(value.users) > 1:
                refusal = LibrarySeveralUsers().refuse_for(value.users)
                self._decide(fusion.computation, producer, consumer, refusal)
            elif isinstance(grow, Grow) and grow.limit is not None and size >= grow.limit:
                refusal = grow.refuse(instructions=size, limit=grow.limit)
                self._decide(fusion.computation, producer, consumer, refusal)

    def _supports(self, operation: MutableInstruction) -> Decision:
        rules = (rule for rule in self.book if isinstance(rule, OperationRule))
        decision = first_decision(rule.check(operation) for rule in rules)
        return decision or Decision(operation.opcode != "parameter", "none")

    def _decide(
        self,
        computation: MutableComputation,
        producer: str,
        consumer: str,
        decision: Decision,
        fusion: MutableInstruction | None = None,
    ) -> None:
        name = fusion.name if fusion is not None else None
        self._decisions.append(PairDecision(computation.name, producer, consumer, decision, name))

    def _grow(self, fusion: MutableInstruction) -> MutableInstruction | None:
        """Fuse neighbours until none is left. Return the fusion that results, or None if there was
        none to fuse. Source: FuseNeighbors.
        """
        grow = self.book.find(Grow.id)
        limit = grow.limit if isinstance(grow, Grow) else None
        computation = fusion.computation
        frontier: deque[tuple[MutableInstruction, str]] = deque()
        visited = {fusion}
        self._add_neighbours(fusion, fusion, (_UP, _DOWN), frontier, visited)
        changed = False
        while frontier and (limit is None or len(fusion.fused.instructions) < limit):
            neighbour, direction = frontier.popleft()
            ends = (neighbour.name, fusion.name)
            producer, consumer = ends if direction == _UP else reversed(ends)
            if neighbour.backend_kind == _KIND:
                together = len(fusion.fused.instructions) + len(neighbour.fused.instructions)
                if limit is None or together <= limit:
                    if direction == _UP:
                        merge_fusion(fusion, neighbour)
                        computation.remove(neighbour)
                    else:
                        merge_fusion(neighbour, fusion)
                        computation.remove(fusion)
                        fusion = neighbour
                    allowed = Decision(True, Grow.id)
                    self._decide(computation, producer, consumer, allowed, fusion)
                    changed = True
                    continue
            decision = self._supports(neighbour)
            if not decision.allow:
                self._decide(computation, producer, consumer, decision)
                continue
            self._taken.add(neighbour)
            self._add_neighbours(fusion, neighbour, (direction,), frontier, visited)
            if direction == _UP:
                fuse_instruction(fusion, neighbour)
                if not neighbour.users:
                    computation.remove(neighbour)
            else:
                fuse_consumer(fusion, neighbour)
            self._decide(computation, producer, consumer, decision, fusion)
            changed = True
        return fusion if changed else None

    def _add_neighbours(
        self,
        fusion: MutableInstruction,
        instruction: MutableInstruction,
        directions: tuple[str, ...],
        frontier: deque[tuple[MutableInstruction, str]],
        visited: set[MutableInstruction],
    ) -> None:
        """Source: AddFusionCandidates."""
        if _UP in directions:
            for operand in instruction.operands:
                if (
                    operand not in self._taken
                    and operand not in visited
                    and all(
                        user is fusion or user is instruction or user in self._taken
                        for user in operand.users
                    )
                ):
                    frontier.append((operand, _UP))
                    visited.add(operand)
        if _DOWN in directions and len(instruction.users) == 1:
            user = next(iter(instruction.users))
            if user not in self._taken and user not in visited:
                frontier.append((user, _DOWN))
                visited.add(user)
