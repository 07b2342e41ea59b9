"""The examples of the rules of CPU fusion, and whether a book decides them as they say."""

from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module, parse
from fusionscope.passes.cpu.instruction_fusion.expense import is_expensive
from fusionscope.passes.cpu.instruction_fusion.rules import CPU_FUSION
from fusionscope.passes.cpu.instruction_fusion.run import CpuInstructionFusion, find_skipped
from fusionscope.passes.inplace import InPlaceRule
from fusionscope.passes.pair_rules import PairRule
from fusionscope.passes.plan import FusionPlan
from fusionscope.passes.rule import RuleBook
from fusionscope.passes.state import FusionState
from fusionscope.rules.examples import Example
from fusionscope.rules.pages import read_examples

EXAMPLES = [(rule.id, example) for rule in CPU_FUSION for example in read_examples(rule.id)]

Book = RuleBook[PairRule | InPlaceRule]


def replay(module: Module, book: Book = CPU_FUSION) -> FusionPlan:
    graph = MutableModule(module)
    state = FusionState(is_expensive=is_expensive, skipped=find_skipped(graph))
    return CpuInstructionFusion(graph, book, state, None).run()


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
        assert example.is_allowed == all(rule.only_allows for rule in book if rule.id == id)
    else:
        assert id not in found
        assert example.instead in found
