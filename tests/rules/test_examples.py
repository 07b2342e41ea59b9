"""Every rule decides what its examples say that it decides, and leaves the rest."""

import pytest

from fusionscope.hlo import Module, parse
from fusionscope.replay.cpu import CpuInstructionFusion, find_skipped
from fusionscope.replay.plan import FusionPlan
from fusionscope.rules.base import PairRule
from fusionscope.rules.cpu.expense import is_expensive
from fusionscope.rules.cpu.fusion import CPU_FUSION, CPU_FUSION_0_10, CPU_FUSION_0_11
from fusionscope.rules.examples import Example, read_examples
from fusionscope.rules.graph import MutableModule
from fusionscope.rules.inplace import InPlaceRule
from fusionscope.rules.rule import RuleBook
from fusionscope.rules.state import FusionState

EXAMPLES = [(rule.id, example) for rule in CPU_FUSION for example in read_examples(rule.id)]
# On a CPU other rules decide before it.
NEVER_ASKED = {"inplace-multi-nonelementwise"}
# They allow all in-place operands at once, and a rule that comes later decides the pair.
ONLY_ALLOW = {"inplace-no-dus"}

Book = RuleBook[PairRule | InPlaceRule]


def replay(module: Module, book: Book = CPU_FUSION) -> FusionPlan:
    graph = MutableModule(module)
    state = FusionState(is_expensive, skipped=find_skipped(graph))
    return CpuInstructionFusion(graph, book, state).run()


def deciders(example: Example, book: Book = CPU_FUSION) -> list[str]:
    """The rules that decided the pair, each time that the pass came to it."""
    return [
        each.decision.rule
        for each in replay(parse(example.text), book).decisions
        if (each.producer, each.consumer) == (example.producer, example.consumer)
    ]


def check(id: str, example: Example, book: Book = CPU_FUSION) -> None:
    found = deciders(example, book)
    assert found, "the pass never came to the pair"
    if example.is_decided:
        assert id in found
    else:
        assert id not in found
        assert example.instead in found


@pytest.mark.parametrize(("id", "example"), EXAMPLES, ids=[f"{i}: {e.why}" for i, e in EXAMPLES])
def test_a_rule_decides_what_its_examples_say(id: str, example: Example) -> None:
    check(id, example)


@pytest.mark.parametrize("id", [rule.id for rule in CPU_FUSION])
def test_every_rule_has_an_example_of_either_kind(id: str) -> None:
    kinds = {example.is_decided for example in read_examples(id)}
    assert kinds == ({False} if id in NEVER_ASKED | ONLY_ALLOW else {True, False})


@pytest.mark.parametrize("example", read_examples("cpu-concat-0.11"), ids=lambda e: e.why)
def test_older_versions_count_elements(example: Example) -> None:
    check("cpu-concat", example, CPU_FUSION_0_11)
    with pytest.raises(AssertionError):
        check("cpu-concat", example)


def test_the_oldest_version_computes_what_a_softmax_reduces_twice() -> None:
    example = next(e for e in read_examples("cpu-softmax-coupling") if e.is_decided)
    assert "cpu-softmax-coupling" in deciders(example, CPU_FUSION_0_11)
    assert "cpu-softmax-coupling" not in deciders(example, CPU_FUSION_0_10)
