"""Makes the rules of the passes around priority fusion wrong in turn.

    PYTHONPATH=. python tests/rules/gpu_pass_mutants.py [--only MODULE | book]

As ``gpu_mutants.py`` does for priority fusion; here the examples of the rules
have to notice, or what the compiler made of the modules in ``gpu_pass_records/``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from gpu_mutants import Judge, Mutant, of_book, read_only, try_all
from gpu_pass_records import Record
from test_gpu_pass_examples import CASES, ELSEWHERE, RULES, check
from test_gpu_pass_records import RECORDS

from fusionscope.rules.examples import Example
from fusionscope.rules.rule import RuleBook

MODULES = tuple(
    f"fusionscope.rules.gpu.{name}"
    for name in """softmax copies block_level wrapper sorting splitting gemm gemm_v1 gemm_v2
    multi_output""".split()
)

# Mutants that behave as the original does, by the reason for it.
EQUIVALENT: dict[str, tuple[str, ...]] = {
    "the pass asks about nothing else": (
        "splitting.SplitConcatenate.check: without operation.opcode != 'concatenate'",
    ),
    "a path ends at what is not trivial, or at what was looked for": (
        "softmax.Diamond.is_closed: without end.opcode != self.producer.opcode",
    ),
    "what is in the order has its operands there, but for the producer, which is never pending": (
        "softmax.Diamond.body: without current not in order",
    ),
    "only a figure that is told of a pair": (
        "softmax._in_microseconds: duration / TICKS_PER_MICROSECOND, Mult",
        "gemm.GemmInputWorth.check: without added_bytes(original)",
        "gemm.GemmInputWorth.check: without 0",
        "gemm.GemmOutputWorth.check: without added",
        "gemm.GemmOutputWorth.check: without 0",
    ),
    "refused before, as neither is elementwise": (
        "copies.CopiedRoot.check: all((each.opcode == 'slice' for each in root.operands)), any",
        "copies.CopiedRoot.check: without end.opcode == 'scatter'",
    ),
    "a reduction of one array has one type, and Triton knows none of several": (
        "block_level.BlockLevelWorth.check: all((each.shape.element_type == 's32' for each in "
        "(root, *root.operands))), any",
    ),
    "no transpose of one dimension swaps two": (
        "block_level._is_slow_transpose: last < 0, LtE",
        "block_level._is_slow_transpose: last < 0, 1",
    ),
    "passes before remove what has no elements": (
        "block_level._is_slow_transpose: without minor > 0",
        "block_level._is_slow_transpose: minor > 0, GtE",
        "block_level._is_slow_transpose: minor > 0, -1",
    ),
    "part of a diamond, and asked whatever the book has": (
        "sm-root-binary removed",
        "sm-edge-broadcast removed",
        "sm-edge-reduce removed",
        "sm-connected removed",
    ),
    "another rule refuses all of it before": ("sm-root-producer removed",),
    "mof-root refuses what is no fusion and makes several arrays in a loop": (
        "multi_output._is_looped_reduce: without instruction.opcode == 'reduce'",
        "multi_output._is_looped_reduce: instruction.opcode == 'reduce', NotEq",
    ),
    "a sibling is refused, and a producer read by no fusion, that makes several arrays in a loop": (
        "multi_output.LoopShape.check: without other.is_array",
    ),
    "what reads several arrays as one is refused before, by gf-opcode or gf-triton-support": (
        "gemm.GemmInputWorth.is_worth: return False, not",
        "gemm.GemmOutputWorth.check: without added is not None",
    ),
    "else only a concatenate has two operands, which writes all that it reads": (
        "gemm.reads_broadcast: without is_elementwise(instruction)",
    ),
    "gf-transpose refuses before": (
        "gemm_v2.GemmTransposeBefore.check: without before is None",
        "gemm_v2.GemmTransposeBefore.check: without tracker is None",
    ),
    "gf-dimensions refuses before": (
        "gemm_v1.OrderedCandidate.takes_broadcast: return False, not",
    ),
    "all examples and records are for an H100": (
        "gemm_v2.GemmBlocks.check: without known is None",
        "gemm_v1._is_known: without isinstance(capability, CudaCapability)",
        "gemm_v1._is_known: without capability.major >= 9",
        "gemm_v1._is_known: capability.major >= 9, 8",
    ),
    "a message, which gpu_pass_oracle.py compares with the compiler's": (
        "gemm_v1.OrderedSupport._problem: return 'Unsupported elementwise operation.', another",
        "gemm_v1.OrderedSupport._problem: return 'Unsupported output data type.', another",
        "gemm_v1.OrderedSupport._problem: return 'Unsupported input data type.', another",
    ),
    "siblings have a parent": ("multi_output.DisjointSlices.check: without parent is None",),
    "no two times that are equal to the tick are known": (
        "multi_output.OutputCost.check: fused <= unfused, Lt",
        "softmax.FasterUnfused.check: unfused >= fused, Gt",
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
