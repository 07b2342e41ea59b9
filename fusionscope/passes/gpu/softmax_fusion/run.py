"""Replays the GPU pass that forms Triton kernels of softmax and other normalizations.

Source: xla/backends/gpu/transforms/softmax_rewriter_triton.cc.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fusionscope.gpu.body import FusionBody
from fusionscope.gpu.emitters import TRITON
from fusionscope.gpu.state import GpuState
from fusionscope.gpu.tiling.computation import Sources, TiledBody
from fusionscope.gpu.tiling.indexing import IndexPropagation
from fusionscope.gpu.tiling.kernel import Tiling
from fusionscope.gpu.tiling.propagation import TilePropagation
from fusionscope.gpu.tiling.search import Untileable
from fusionscope.graph.fusing import clone_into
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_and_prune
from fusionscope.passes.context import PassContext
from fusionscope.passes.gpu.softmax_fusion.rules import (
    GPU_SOFTMAX,
    GPU_SOFTMAX_CHAINS,
    Diamond,
    DiamondRule,
    FasterUnfused,
    Paths,
    Span,
    Tileable,
    TilingFound,
)
from fusionscope.passes.gpu.softmax_fusion.unfused import time_unfused
from fusionscope.passes.gpu.triton_fusion import set_triton_config
from fusionscope.passes.plan import FusionPlan, PairDecision, decided
from fusionscope.passes.rule import NO_OBJECTION, Decision, Rule, RuleBook, first_decision

_NAME = "triton_softmax"


def run(graph: MutableModule, book: RuleBook[Rule], context: PassContext) -> FusionPlan:
    rewriter = ChainRewriter if book.name == GPU_SOFTMAX_CHAINS.name else SoftmaxRewriter
    return rewriter(graph, book, context.gpu_state()).run()


@dataclass(slots=True)
class SoftmaxRewriter:
    """The pass over ``graph``, which it changes, with the rules of ``book``.

    It first collects the diamonds, and then tries to make a kernel of each.
    """

    graph: MutableModule
    book: RuleBook[Rule]
    state: GpuState
    _decisions: list[PairDecision] = field(default_factory=list)

    def run(self) -> FusionPlan:
        rules = tuple(self._rules())
        paths = self._paths
        diamonds = [
            diamond
            for computation in self.graph.post_order()
            if not computation.is_fused
            and all(caller.opcode != "custom-call" for caller in computation.callers)
            for instruction in computation.post_order()
            if self._matches(diamond := Diamond(instruction, paths), rules)
        ]
        # From the last to the first: the operand of a diamond may be the root of an earlier one.
        for span in reversed(list(self._spans(diamonds))):
            if span.root.parent is not None:  # unless another diamond has absorbed it
                self._decide(span)
        return FusionPlan(self.book.pass_name, tuple(self._decisions), self.graph)

    @property
    def _paths(self) -> Paths:
        return Paths(self.state.triton)

    def _spans(self, diamonds: Sequence[Diamond]) -> Iterator[Span]:
        """Yield what kernels could be made of."""
        return (diamond.span for diamond in diamonds)

    def _rules(self) -> Iterator[DiamondRule]:
        """Yield the rules about diamonds: those of the book, and those that define a diamond, even
        if the book has been changed to lack them.
        """
        for original in GPU_SOFTMAX:
            rule = self.book.find(original.id)
            if rule is None and isinstance(original, DiamondRule) and original.is_part:
                rule = original
            if isinstance(rule, DiamondRule):
                yield rule

    def _matches(self, diamond: Diamond, rules: Iterable[DiamondRule]) -> bool:
        """Return whether no rule objects to the diamond, and record the refusal if one does.

        Source: FindAllFusibleNormalizationDiamonds.
        """
        refusal = first_decision(rule.check(diamond, self.state) for rule in rules)
        if refusal is None:
            refusal = self._refusal_of_tiles(diamond.span)
        if refusal is not None:
            self._record(diamond.way, refusal)
        return refusal is None

    def _refusal_of_tiles(self, span: Span) -> Decision | None:
        tileable = self.book.find(Tileable.id)
        if not isinstance(tileable, Tileable):
            return None
        fusion = self._make_fusion(span)
        refusal = tileable.check(self._tiled(FusionBody(fusion)))
        _discard(fusion)
        return refusal

    def _tiled(self, body: FusionBody) -> TiledBody:
        """Source: CanSymbolicTileAnalysisTileDiamond."""
        propagates = self.state.gpu_model.triton.propagates_tiles
        propagation = TilePropagation() if propagates else IndexPropagation(body)
        return TiledBody(body, propagation, Sources().register)

    def _decide(self, span: Span) -> None:
        """Replace a span by its fusion, unless that has no tiling or costs time.

        Source: MaybeFuseDiamondImpl.
        """
        fusion, root = self._make_fusion(span), span.root
        tiling = self.state.triton.find_best_tiling(FusionBody(fusion))
        if isinstance(tiling, Untileable):
            refusal: Decision | None = TilingFound().refuse_because(tiling)
        else:
            refusal = self._refusal_by_cost(fusion, tiling)
            set_triton_config(fusion, tiling)
        if refusal is not None:
            self._record(span.inside, refusal)
            _discard(fusion)
            return
        self._record(span.inside, NO_OBJECTION, fusion)
        root.computation.add(fusion)
        replace_and_prune(root, fusion)

    def _refusal_by_cost(self, fusion: MutableInstruction, tiling: Tiling) -> Decision | None:
        """Source: DecideIfShouldFuseAndMaybeSetBlockLevelParameters."""
        rule = self.book.find(FasterUnfused.id)
        if not isinstance(rule, FasterUnfused):
            return None
        unfused = time_unfused(fusion.fused, self.state.device, self.state.gpu_model)
        return rule.check(tiling.total, unfused)

    def _make_fusion(self, span: Span) -> MutableInstruction:
        """Return the fusion that a span would become, not yet in the computation.

        Source: MakeFusionForDiamond.
        """
        fused = self.graph.add_computation(f"{_NAME}_computation")
        copies: dict[MutableInstruction, MutableInstruction] = {}
        operands: list[MutableInstruction] = []
        for instruction in span.body():
            if instruction is span.producer or instruction.opcode == "parameter":
                copies[instruction] = fused.make_parameter(instruction.shape)
                operands.append(instruction)
            else:
                copied_operands = [copies[operand] for operand in instruction.operands]
                copies[instruction] = clone_into(instruction, fused, copied_operands)
        fused.root = copies[span.root]
        name = self.graph.instruction_name(_NAME)
        fusion = MutableInstruction(name, "fusion", fused.root.shape, operands)
        fusion.fusion_kind, fusion.backend_kind = "kCustom", TRITON
        fusion.called = [fused]
        return fusion

    def _record(
        self,
        pairs: Sequence[tuple[MutableInstruction, MutableInstruction]],
        decision: Decision,
        fusion: MutableInstruction | None = None,
    ) -> None:
        self._decisions += [decided(*pair, decision, fusion) for pair in pairs]


class ChainRewriter(SoftmaxRewriter):
    """The pass where it still joins diamonds. Source: FindAllFusibleDiamondChains."""

    __slots__ = ()

    @property
    def _paths(self) -> Paths:
        return Paths(self.state.triton, keep_rows=True)

    def _spans(self, diamonds: Sequence[Diamond]) -> Iterator[Span]:
        chains: list[list[Diamond]] = []
        for diamond in diamonds:
            if chains and self._continues(chains[-1], diamond):
                chains[-1].append(diamond)
            else:
                chains.append([diamond])
        for chain in chains:
            span = Span(self._start(chain[0].producer), self._end(chain[-1].root))
            refusal = self._refusal_of_tiles(span)
            if refusal is None:
                yield span
            else:
                self._record(span.inside, refusal)

    def _continues(self, chain: Sequence[Diamond], diamond: Diamond) -> bool:
        start = self._start(diamond.producer)
        return (
            start is chain[-1].root
            and len(start.users) == (2 if start is diamond.producer else 1)
            and diamond.row_length == chain[0].row_length
        )

    def _start(self, producer: MutableInstruction) -> MutableInstruction:
        """Source: FindFirstNonFusibleDiamondProducer."""
        users = 2  # the reduction and the root
        while self._paths.is_trivial(producer, users):
            producer, users = self._paths.above(producer), 1
        return producer

    def _end(self, root: MutableInstruction) -> MutableInstruction:
        """Return the last trivial user of ``root``, and of its only users, which alone may have
        several users. Source: GetLastTriviallyFusibleUser.
        """
        while len(root.users) == 1 and not root.is_root:
            user = next(iter(root.users))
            if not self._paths.is_trivial(user, len(user.users)):
                break
            root = user
        return root


def _discard(fusion: MutableInstruction) -> None:
    """Empty the computation of a fusion that is not used, so that it calls no other one."""
    for instruction in reversed(list(fusion.fused.instructions)):
        fusion.fused.remove(instruction)
