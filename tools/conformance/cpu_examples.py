"""The examples of the rules of CPU fusion, and whether a book decides them as they say."""

from fusionscope.hlo import Module, parse
from fusionscope.replay.cpu import CpuInstructionFusion, find_skipped
from fusionscope.replay.plan import FusionPlan
from fusionscope.rules.base import PairRule
from fusionscope.rules.cpu.expense import is_expensive
from fusionscope.rules.cpu.fusion import CPU_FUSION
from fusionscope.rules.examples import Example, read_examples
from fusionscope.rules.graph import MutableModule
from fusionscope.rules.inplace import InPlaceRule
from fusionscope.rules.rule import RuleBook
from fusionscope.rules.state import FusionState

EXAMPLES = [(rule.id, example) for rule in CPU_FUSION for example in read_examples(rule.id)]

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
