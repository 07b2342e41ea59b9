"""The examples of the rules about operations and siblings, and whether a book decides them so.

Some rules of these passes are about what happens, not asked about each operation; an example of
theirs says what the module looks like afterwards. Types of library fusions that are not the usual
ones stand in an example as ``// types: DOT, ELTWISE``.
"""

import re
from collections.abc import Iterator
from typing import Any

from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo import parse
from fusionscope.passes.context import PassContext
from fusionscope.passes.cpu.instruction_fusion.rules import CPU_FUSION
from fusionscope.passes.fusion_pass import pass_of
from fusionscope.passes.plan import FusionPlan
from fusionscope.passes.rule import RuleBook
from fusionscope.rules.examples import Example
from fusionscope.rules.pages import read_examples
from fusionscope.versions.known import all_compilers

Book = RuleBook[Any]

_NUMBER = re.compile(r"\.\d+$")

# Of the newest version; cpu_examples.py has those of the pass that decides on single pairs.
BOOKS: tuple[Book, ...] = tuple(
    book
    for book in next(each for each in all_compilers() if each.backend == "cpu").books
    if book is not CPU_FUSION
)
EXAMPLES = [
    (book, rule.id, example)
    for book in BOOKS
    for rule in book
    for example in read_examples(rule.id)
]
# Rules whose examples say whether two operations (or one) end in a library fusion: what it is that
# the rule decides.
ENDS_INSIDE = {
    "lib-starters": True,
    "lib-individual": False,
    "lib-grow": True,
    "lib-trailing-moves": False,
}
# Rules because of which the pass never comes to two siblings.
NEVER_MEET = {"cpu-mof-worklist", "cpu-mof-fusible"}


def run(example: Example, book: Book) -> FusionPlan:
    types = re.search(r"^// types: (.+)$", example.text, re.MULTILINE)
    context = PassContext(frozenset(types[1].split(", "))) if types else PassContext()
    return pass_of(book).run(MutableModule(parse(example.text)), context)


def library_fusions(plan: FusionPlan) -> Iterator[MutableInstruction]:
    for computation in MutableModule(plan.module).post_order():
        for instruction in computation.post_order():
            if instruction.is_custom_fusion:
                yield instruction


def check(id: str, example: Example, book: Book) -> None:
    plan = run(example, book)
    pair = example.producer, example.consumer or example.producer
    if id in ENDS_INSIDE:
        held = [
            {_NUMBER.sub("", each.name) for each in fusion.fused.instructions}
            for fusion in library_fusions(plan)
        ]
        inside = any(set(pair) <= names for names in held)
        assert inside == (example.is_decided == ENDS_INSIDE[id])
        return
    found = {
        (each.decision.rule, each.decision.allow, each.fusion is not None)
        for each in plan.decisions
        if (each.producer, each.consumer) == pair
    }
    if id in NEVER_MEET and example.is_decided:
        assert not found and pair[::-1] not in {(e.producer, e.consumer) for e in plan.decisions}
    elif example.is_decided:
        assert (id, example.is_allowed, example.is_allowed) in found
    else:
        rules = {rule for rule, *_ in found}
        assert rules, "the pass never came to it"
        assert id not in rules
        assert example.instead is None or example.instead in rules
