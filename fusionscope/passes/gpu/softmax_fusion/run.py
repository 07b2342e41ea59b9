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
    Diamond,
    DiamondRule,
    FasterUnfused,
    Tileable,
    TilingFound,
)
from fusionscope.passes.gpu.softmax_fusion.unfused import time_unfused
from fusionscope.passes.gpu.triton_fusion import set_triton_config
from fusionscope.passes.plan import FusionPlan, PairDecision, decided
from fusionscope.passes.rule import NO_OBJECTION, Decision, Rule, RuleBook, first_decision

_NAME = "triton_softmax"


def run(graph: MutableModule, book: RuleBook[Rule], context: PassContext) -> FusionPlan:
    return SoftmaxRewriter(graph, book, context.gpu_state()).run()


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
        diamonds = [
            diamond
            for computation in self.graph.post_order()
            if not computation.is_fused
            and all(caller.opcode != "custom-call" for caller in computation.callers)
            for instruction in computation.post_order()
            if self._matches(diamond := Diamond(instruction, self.state.triton), rules)
        ]
        # From the last to the first: the operand of a diamond may be the root of an earlier one.
        for diamond in reversed(diamonds):
            if diamond.root.parent is not None:  # unless another diamond has absorbed it
                self._decide(diamond)
        return FusionPlan(self.book.pass_name, tuple(self._decisions), self.graph)

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
            fusion = self._make_fusion(diamond)
            tileable = self.book.find(Tileable.id)
            if isinstance(tileable, Tileable):
                refusal = tileable.check(self._tiled(FusionBody(fusion)))
            _discard(fusion)
        if refusal is not None:
            self._record(diamond.way, refusal)
        return refusal is None

    def _tiled(self, body: FusionBody) -> TiledBody:
        """Source: CanSymbolicTileAnalysisTileDiamond."""
        propagates = self.state.gpu_model.triton.propagates_tiles
        propagation = TilePropagation() if propagates else IndexPropagation(body)
        return TiledBody(body, propagation, Sources().register)

    def _decide(self, diamond: Diamond) -> None:
        """Replace the diamond by its fusion, unless that has no tiling or costs time.

        Source: MaybeFuseDiamondImpl.
        """
        fusion, root = self._make_fusion(diamond), diamond.root
        tiling = self.state.triton.find_best_tiling(FusionBody(fusion))
        if isinstance(tiling, Untileable):
            refusal: Decision | None = TilingFound().refuse_because(tiling)
        else:
            refusal = self._refusal_by_cost(fusion, tiling)
            set_triton_config(fusion, tiling)
        if refusal is not None:
            self._record(diamond.inside, refusal)
            _discard(fusion)
            return
        self._record(diamond.inside, NO_OBJECTION, fusion)
        root.computation.add(fusion)
        replace_and_prune(root, fusion)

    def _refusal_by_cost(self, fusion: MutableInstruction, tiling: Tiling) -> Decision | None:
        """Source: DecideIfShouldFuseAndMaybeSetBlockLevelParameters."""
        rule = self.book.find(FasterUnfused.id)
        if not isinstance(rule, FasterUnfused):
            return None
        unfused = time_unfused(fusion.fused, self.state.device, self.state.gpu_model)
        return rule.check(tiling.total, unfused)

    def _make_fusion(self, diamond: Diamond) -> MutableInstruction:
        """Return the fusion that a diamond would become, not yet in the computation.

        Source: MakeFusionForDiamond.
        """
        fused = self.graph.add_computation(f"{_NAME}_computation")
        copies: dict[MutableInstruction, MutableInstruction] = {}
        operands: list[MutableInstruction] = []
        for instruction in diamond.body():
            if instruction is diamond.producer or instruction.opcode == "parameter":
                copies[instruction] = fused.make_parameter(instruction.shape)
                operands.append(instruction)
            else:
                copied_operands = [copies[operand] for operand in instruction.operands]
                copies[instruction] = clone_into(instruction, fused, copied_operands)
        fused.root = copies[diamond.root]
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


def _discard(fusion: MutableInstruction) -> None:
    """Empty the computation of a fusion that is not used, so that it calls no other one."""
    for instruction in reversed(list(fusion.fused.instructions)):
        fusion.fused.remove(instruction)
