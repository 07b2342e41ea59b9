"""Makes the rules of the passes around priority fusion wrong in turn.

    python tools/conformance/gpu_pass_mutants.py [--only MODULE | book]

As ``gpu_mutants.py`` does for priority fusion; here the examples of the rules
have to notice, or what the compiler made of the modules in ``gpu_pass_records/``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from gpu_mutants import Judge, Mutant, of_book, read_only, try_all
from gpu_pass_examples import CASES, ELSEWHERE, RULES, check
from gpu_pass_records import RECORDS, Record

from fusionscope.passes.rule import RuleBook
from fusionscope.rules.examples import Example

MODULES = tuple(
    f"fusionscope.passes.gpu.{name}"
    for name in """softmax_fusion.rules copy_fusion.rules block_level.rules fusion_wrapper.rules
    sort_iota_fusion.rules variadic_op_splitter.rules gemm_fusion.rules gemm_fusion.rules_v1
    gemm_fusion.rules_v2 multi_output_fusion.rules""".split()
)

# Mutants that behave as the original does, by the reason for it.
EQUIVALENT: dict[str, tuple[str, ...]] = {
    "the pass asks about nothing else": (
        "variadic_op_splitter.rules.SplitConcatenate.check: without "
        "operation.opcode != 'concatenate'",
    ),
    "a path ends at what is not trivial, or at what was looked for": (
        "softmax_fusion.rules.Diamond.is_closed: without end.opcode != self.producer.opcode",
    ),
    "what is in the order has its operands there, but for the producer, which is never pending": (
        "softmax_fusion.rules.Diamond.body: without current not in order",
    ),
    "only a figure that is told of a pair": (
        "gemm_fusion.rules.GemmInputWorth.check: without added_bytes(original)",
        "gemm_fusion.rules.GemmInputWorth.check: without 0",
        "gemm_fusion.rules.GemmOutputWorth.check: without added",
        "gemm_fusion.rules.GemmOutputWorth.check: without 0",
    ),
    "refused before, as neither is elementwise": (
        "copy_fusion.rules.CopiedRoot.check: all((each.opcode == 'slice' for "
        "each in root.operands)), any",
        "copy_fusion.rules.CopiedRoot.check: without end.opcode == 'scatter'",
    ),
    "a reduction of one array has one type, and Triton knows none of several": (
        "block_level.rules.BlockLevelWorth.check: all((each.shape.element_type "
        "== 's32' for each in "
        "(root, *root.operands))), any",
    ),
    "no transpose of one dimension swaps two": (
        "block_level.rules._is_slow_transpose: last < 0, LtE",
        "block_level.rules._is_slow_transpose: last < 0, 1",
    ),
    "passes before remove what has no elements": (
        "block_level.rules._is_slow_transpose: without minor > 0",
        "block_level.rules._is_slow_transpose: minor > 0, GtE",
        "block_level.rules._is_slow_transpose: minor > 0, -1",
    ),
    "asked whatever the book has": (
        "mof-sibling-cand removed",
        "copy-fusion-source removed",
        "block-rewriter-tiling removed",
        "sm-tiling-search removed",
    ),
    "the two are asked in different steps of the pass": (
        "gf-dot-support behind gf-fusible",
        "gf-triton-support behind gf-parameters",
        "gf-transpose-before behind gf-transpose-behind",
        "gf-transpose-behind behind gf-input-worth",
        "gf-input-worth behind gf-other-inputs",
        "gf-side-parameters behind gf-opcode",
        "sm-root-producer behind sm-tile",
        "sm-tile behind sm-tiling-search",
        "sm-tiling-search behind sm-cost",
        "mof-parent behind mof-root",
        "mof-sibling-cand behind mof-order",
        "mof-order behind mof-pc-producer",
        "mof-pc-single-user behind mof-connected",
        "mof-dus behind mof-pc-cycle",
        "mof-pc-cost behind mof-pc-choice",
        "copy-fusion-dus behind copy-fusion-outputs",
    ),
    "the two are about different operations": (
        "gf-power behind gf-concatenate",
        "gf-concatenate behind gf-transpose",
        "gf-opcode behind gf-power",
    ),
    "what reads something else too writes no more than it reads": (
        "gf-other-inputs behind gf-output-worth",
    ),
    "what writes more than it reads has tiles": ("gf-output-worth behind gf-tiling",),
    "of what is no sibling nothing is told": ("mof-root behind mof-sibling-cand",),
    "a fusion with a tiling is one for Triton, which is not asked about": (
        "block-rewriter-support behind block-rewriter-done",
    ),
    "the pass has an order of its own for diamonds": (
        "sm-root-binary behind sm-root-triton",
        "sm-root-triton behind sm-edge-broadcast",
        "sm-edge-broadcast behind sm-edge-reduce",
        "sm-edge-reduce behind sm-layout",
        "sm-layout behind sm-reduce-ok",
        "sm-reduce-ok behind sm-one-use",
        "sm-one-use behind sm-bcast-dim",
        "sm-bcast-dim behind sm-producer-layout",
        "sm-producer-layout behind sm-connected",
        "sm-connected behind sm-root-producer",
    ),
    "part of a diamond, and asked whatever the book has": (
        "sm-root-binary removed",
        "sm-edge-broadcast removed",
        "sm-edge-reduce removed",
        "sm-connected removed",
    ),
    "another rule refuses all of it before": ("sm-root-producer removed",),
    "mof-root refuses what is no fusion and makes several arrays in a loop": (
        "multi_output_fusion.rules._is_looped_reduce: without instruction.opcode == 'reduce'",
        "multi_output_fusion.rules._is_looped_reduce: instruction.opcode == 'reduce', NotEq",
    ),
    "what reads several arrays as one is refused before, by gf-opcode or gf-triton-support": (
        "gemm_fusion.rules.GemmInputWorth.is_worth: return False, not",
        "gemm_fusion.rules.GemmOutputWorth.check: without added is not None",
    ),
    "else only a concatenate has two operands, which writes all that it reads": (
        "gemm_fusion.rules.reads_broadcast: without is_elementwise(instruction)",
    ),
    "gf-transpose refuses before": (
        "gemm_fusion.rules_v2.GemmTransposeBefore.check: without before is None",
        "gemm_fusion.rules_v2.GemmTransposeBefore.check: without tracker is None",
    ),
    "gf-dimensions refuses before": (
        "gemm_fusion.rules_v1.OrderedCandidate.takes_broadcast: return False, not",
    ),
    "all examples and records are for an H100": (
        "gemm_fusion.rules_v2.GemmBlocks.check: without known is None",
        "gemm_fusion.rules_v1._is_known: without isinstance(capability, CudaCapability)",
        "gemm_fusion.rules_v1._is_known: without capability.major >= 9",
        "gemm_fusion.rules_v1._is_known: capability.major >= 9, 8",
    ),
    "a message, which gpu_pass_oracle.py compares with the compiler's": (
        "gemm_fusion.rules_v1.OrderedSupport._problem: return 'Unsupported "
        "elementwise operation.', another",
        "gemm_fusion.rules_v1.OrderedSupport._problem: return 'Unsupported "
        "output data type.', another",
        "gemm_fusion.rules_v1.OrderedSupport._problem: return 'Unsupported input "
        "data type.', another",
        "gemm_fusion.rules_v1._problem_of_dynamic_slice: return 'Dynamic slice "
        "is only supported with S8, S16, "
        "or S32 indices.', another",
        "gemm_fusion.rules_v1._problem_of_dynamic_slice: return 'Unsupported "
        "dynamic slice on non-major-most "
        "dimension.', another",
    ),
    "a dynamic-slice starts at numbers of one type": (
        "gemm_fusion.rules_v1._problem_of_dynamic_slice: "
        "any((start.shape.element_type not in ('s8', 's16', "
        "'s32') for start in starts)), all",
    ),
    "only tells of more pairs, which tests/replay/test_softmax.py asks about": (
        "softmax_fusion.rules.Diamond.inside: for without each is not self.producer",
        "softmax_fusion.rules.Diamond.inside: for without operand is not "
        "self.producer and operand.opcode != "
        "'parameter'",
        "softmax_fusion.rules.Diamond.inside: without operand is not self.producer",
        "softmax_fusion.rules.Diamond.inside: without operand.opcode != 'parameter'",
    ),
    "what takes a dimension apart changes places with the transpose, or has no tiles": (
        "gemm_fusion.rules_v2.GemmTranspose._reads_vectors: without dimensions is not None",
    ),
    "every version with records looks above roots": (
        "multi_output_fusion.rules.find_real_hero: without instruction.is_multi_output",
    ),
    "siblings have a parent": (
        "multi_output_fusion.rules.DisjointSlices.check: without parent is None",
    ),
    "no two times that are equal to the tick are known": (
        "multi_output_fusion.rules.OutputCost.check: fused <= unfused, Lt",
        "softmax_fusion.rules.FasterUnfused.check: unfused >= fused, Gt",
    ),
}


def judges() -> Iterator[Judge]:
    for id, example in CASES:
        yield Judge(f"{id}: {example.why}", partial(_as_it_says, id, example))
    for name, record in RECORDS.items():
        yield Judge(name, partial(_as_recorded, record))


def _as_it_says(id: str, example: Example, book: RuleBook[Any] | None) -> bool:
    is_own = book is not None and book.name == RULES[id][1].name
    check(id, example, book if is_own else None)
    return True


def _as_recorded(record: Record, book: RuleBook[Any] | None) -> bool:
    is_own = book is not None and book.name == record.book.name
    return record.difference(book if is_own else None) is None


def of_books() -> Iterator[Mutant]:
    """Each rule in the newest book that has it."""
    for book in dict.fromkeys(book for _, book in RULES.values()):
        others = [rule for rule in book if rule.id in ELSEWHERE or RULES[rule.id][1] is not book]
        if len(others) < len(book.rules):
            yield from of_book(book, others)


def main() -> None:
    sys.exit(not try_all(read_only(), MODULES, of_books(), list(judges()), EQUIVALENT))


if __name__ == "__main__":
    main()
