"""Who computes a product on a CPU, and why YNN does not."""

from __future__ import annotations

from typing import NamedTuple, cast

from fusionscope.graph.mutable import MutableInstruction
from fusionscope.hlo import Instruction
from fusionscope.passes.cpu.library_fusion.rules import Starters
from fusionscope.passes.operation import OperationRule
from fusionscope.passes.rule import Decision, Rule, RuleBook, first_decision

_EIGEN_TYPES = frozenset("bf16 f16 f32 f64 c64 c128 s32".split())
_UNTILED_TYPES = frozenset("f16 c64 c128".split())
_FEW = 3  # rows or columns of an operand, which plain loops go through
_SMALL, _DEEP = (32, 128), 128  # what loops in tiles compute where Eigen has one thread


class Emitter(NamedTuple):
    """``library`` computes a product ``how``."""

    library: str
    how: str


EIGEN = Emitter("Eigen", "")
TILED = Emitter("XLA", "by loops in tiles")
PLAIN = Emitter("XLA", "by plain loops")


def emitter_of(dot: Instruction, *, is_threaded: bool = True) -> Emitter:
    """Return who computes a dot that no library fusion took. ``is_threaded`` is the flag
    ``xla_cpu_multi_thread_eigen``.

    Source: GetNonBatchDotImplementationStrategy in xla/service/cpu/dot_op_emitter.cc.
    """
    left, right, result = (
        _without_batch(dot, side, shape)
        for side, shape in (
            ("lhs", dot.operands[0].shape.dimensions),
            ("rhs", dot.operands[1].shape.dimensions),
            ("", dot.shape.dimensions),
        )
    )
    kind = dot.shape.element_type
    is_real = not kind.startswith("c")
    if is_real and (len(result) <= 1 or (len(result) == 2 and 1 in result)):
        return TILED
    if is_real and _is_tiny(left) and _is_tiny(right):
        return PLAIN
    is_matrix = len(left) == len(right) == len(result) == 2
    if not is_matrix or kind not in _EIGEN_TYPES or 0 in (*left, *right):
        return PLAIN
    return TILED if not is_threaded and _is_tiled(dot, left, result) else EIGEN


def _without_batch(dot: Instruction, side: str, sizes: tuple[int | None, ...]) -> tuple[int, ...]:
    batch = dot.attribute(f"{side or 'lhs'}_batch_dims") or ()
    dropped = batch if side else range(len(batch))
    return tuple(size or 0 for d, size in enumerate(sizes) if d not in dropped)


def _is_tiny(sizes: tuple[int, ...]) -> bool:
    return len(sizes) <= 1 or (len(sizes) == 2 and min(sizes) <= _FEW)


def _is_tiled(dot: Instruction, left: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Source: CanEmitTiledLlvmIrGemm."""
    batch = len(dot.attribute("lhs_batch_dims") or ())
    summed = [(dot.attribute(f"{side}_contracting_dims") or (0,))[0] for side in ("lhs", "rhs")]
    few, many = _SMALL
    is_small = left[summed[0] - batch] <= _DEEP and min(result) <= few and max(result) <= many
    is_plain = [place - batch for place in summed] == [1, 0]
    return is_small and is_plain and dot.shape.element_type not in _UNTILED_TYPES


def find_refusal(dot: Instruction, book: RuleBook[Rule], types: frozenset[str]) -> Decision | None:
    """Return why YNN does not take a dot, None if its rules allow it. ``types`` are those of
    library fusions that are enabled.
    """
    operation = cast(MutableInstruction, dot)  # of which rules only read
    starters = book.find(Starters.id)
    if isinstance(starters, Starters) and starters.starts(operation, types) is None:
        return starters.refuse("no fusion of YNN may begin with a product")
    rules = (rule for rule in book if isinstance(rule, OperationRule))
    decision = first_decision(rule.check(operation) for rule in rules)
    return None if decision is None or decision.allow else decision
