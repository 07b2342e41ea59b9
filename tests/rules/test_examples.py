"""Every rule decides what its examples say that it decides, and leaves the rest."""

import pytest
from conformance.examples import (
    CPU_EXAMPLES,
    OLDER_CPU_EXAMPLES,
    Book,
    check_cpu,
    cpu_deciders,
)

from fusionscope.passes.cpu.instruction_fusion.rules import CPU_FUSION
from fusionscope.rules.examples import Example
from fusionscope.rules.pages import read_examples
from fusionscope.versions.jaxlib_0_10_2.cpu import CPU_FUSION_0_10
from fusionscope.versions.jaxlib_0_11_2.cpu import CPU_FUSION_0_11

# On a CPU other rules decide before it.
NEVER_ASKED = {"inplace-multi-nonelementwise"}
# They allow all in-place operands at once, and a rule that comes later decides the pair.
ONLY_ALLOW = {"inplace-no-dus"}


@pytest.mark.parametrize(
    ("id", "example"), CPU_EXAMPLES, ids=[f"{i}: {e.why}" for i, e in CPU_EXAMPLES]
)
def test_a_rule_decides_what_its_examples_say(id: str, example: Example) -> None:
    check_cpu(id, example)


@pytest.mark.parametrize("id", [rule.id for rule in CPU_FUSION])
def test_every_rule_has_an_example_of_either_kind(id: str) -> None:
    kinds = {example.is_decided for example in read_examples(id)}
    assert kinds == ({False} if id in NEVER_ASKED | ONLY_ALLOW else {True, False})


@pytest.mark.parametrize(("id", "example", "book"), OLDER_CPU_EXAMPLES)
def test_older_versions_decide_otherwise(id: str, example: Example, book: Book) -> None:
    check_cpu(id, example, book)
    if CPU_FUSION.find(id) is not None:
        with pytest.raises(AssertionError):
            check_cpu(id, example)


def test_the_oldest_version_computes_what_a_softmax_reduces_twice() -> None:
    example = next(e for e in read_examples("cpu-softmax-coupling") if e.is_decided)
    assert "cpu-softmax-coupling" in cpu_deciders(example, CPU_FUSION_0_11)
    assert "cpu-softmax-coupling" not in cpu_deciders(example, CPU_FUSION_0_10)
