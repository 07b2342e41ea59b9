"""The fusion passes of jaxlib 0.10.1 for CPUs: reductions go to YNN alone or with converts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.passes.cpu.library_fusion.rules import DataMove, Elementwise, Preferred, Reduce
from fusionscope.passes.rule import Decision
from fusionscope.versions.jaxlib_0_10_2 import cpu as newer
from fusionscope.versions.jaxlib_0_10_2.cpu import YNN_0_10

_TYPES = frozenset("s4 u4 s8 u8 bf16 f16 f32 s32".split())
_REDUCERS = frozenset({"add", "maximum", "minimum"})
_NOT_BEHIND = frozenset({"broadcast", "concatenate", "multiply", "slice"})
_WIDENED = frozenset({("bf16", "f32"), ("s8", "s32")})


@dataclass(frozen=True, slots=True)
class LargeReduce(Reduce):
    """A reduction of many elements that XLA would not fuse with the operation before it."""

    min_elements: int = 32768
    not_behind: frozenset[str] = _NOT_BEHIND

    def check(self, operation: MutableInstruction) -> Decision | None:
        decision = Reduce.check(self, operation)
        if decision is None or not decision.allow:
            return decision
        source = operation.operands[0]
        elements = source.shape.element_count
        if elements < self.min_elements:
            return self.refuse(elements=elements, min_elements=self.min_elements)
        is_converted = source.opcode == "convert"
        types = tuple(value.shape.element_type for value in (*source.operands[:1], source))
        if source.opcode in self.not_behind or (is_converted and types not in _WIDENED):
            return self.refuse(source=source.opcode)
        return decision

    def is_typed(self, reducer: str, source: str, result: str) -> bool:
        return reducer in _REDUCERS and result in ("bf16", "f32")


@dataclass(frozen=True, slots=True)
class Converts(Elementwise):
    """Of elementwise operations, a reduction takes only converts along."""

    unary: frozenset[str] = frozenset({"convert"})
    min_elements: int = 64

    def check(self, operation: MutableInstruction) -> Decision | None:
        types = {value.shape.element_type for value in (*operation.operands, operation)}
        if operation.opcode not in self.unary or not types <= _TYPES:
            return self.refuse(operation=operation.opcode, types=" ".join(sorted(types)))
        elements = operation.shape.element_count
        if elements < self.min_elements:
            return self.refuse(elements=elements, min_elements=self.min_elements)
        return self.allow()


YNN_0_10_1 = (
    YNN_0_10.renamed("cpu-ynn-0.10.1")
    .without(Preferred.id)
    .with_rule(DataMove(frozenset({"bitcast", "constant", "reshape"})))
    .with_rule(LargeReduce())
    .with_rule(Converts())
)

COMPILER = replace(newer.COMPILER, name="cpu-0.10.1", release="0.10.1").with_books(YNN_0_10_1)
