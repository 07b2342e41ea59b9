"""The rules about operations and siblings decide what their examples say, and leave the rest."""

import pytest
from conformance.examples import (
    OPERATION_BOOKS,
    OPERATION_EXAMPLES,
    Book,
    check_operation,
    library_fusions,
)

from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import parse
from fusionscope.passes.context import PassContext
from fusionscope.passes.cpu.library_fusion.rules import YNN
from fusionscope.passes.fusion_pass import pass_of
from fusionscope.rules.examples import Example
from fusionscope.rules.pages import read_examples
from fusionscope.versions.jaxlib_0_10_2.cpu import YNN_0_10
from fusionscope.versions.jaxlib_0_11_2.cpu import YNN_0_11

NAMES = [f"{id}: {example.why}" for _, id, example in OPERATION_EXAMPLES]


@pytest.mark.parametrize(("book", "id", "example"), OPERATION_EXAMPLES, ids=NAMES)
def test_a_rule_decides_what_its_examples_say(book: Book, id: str, example: Example) -> None:
    check_operation(id, example, book)


@pytest.mark.parametrize("id", [rule.id for book in OPERATION_BOOKS for rule in book])
def test_every_rule_has_an_example_of_either_kind(id: str) -> None:
    assert {example.is_decided for example in read_examples(id)} == {True, False}


def chain(length: int) -> str:
    """Elementwise operations, each of the one before."""
    lines = [f"  v{n} = f32[4096] abs(v{n - 1})" for n in range(1, length + 1)]
    text = "\n".join(
        ["HloModule chain", "", "ENTRY main {", "  v0 = f32[4096] parameter(0)", *lines]
    )
    return f"{text}\n}}\n"


@pytest.mark.parametrize(("book", "fusions"), [(YNN, 2), (YNN_0_11, 2), (YNN_0_10, 1)])
def test_the_oldest_version_has_no_limit(book: Book, fusions: int) -> None:
    """What jaxlib makes of a chain of 150: two fusions from 0.11 on, one before."""
    context = PassContext(frozenset({"ELTWISE"}))
    plan = pass_of(book).run(MutableModule(parse(chain(150))), context)
    assert len(list(library_fusions(plan))) == fusions
