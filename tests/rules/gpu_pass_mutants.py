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
EQUIVALENT: dict[str, tuple[str, ...]] = {}


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
