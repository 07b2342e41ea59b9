"""Every rule of the passes around priority fusion decides what its examples say on an H100."""

from __future__ import annotations

from typing import Any

import pytest
from test_gpu_examples import EXAMPLES as OF_PRIORITY_FUSION
from test_gpu_examples import H100

from fusionscope.hlo import parse
from fusionscope.replay.gpu_passes import replay_gpu
from fusionscope.replay.gpu_target import GpuTarget
from fusionscope.replay.plan import FusionPlan
from fusionscope.rules.books import GPU_BOOKS
from fusionscope.rules.examples import Example, read_examples
from fusionscope.rules.gpu.state import GPU_SETTINGS
from fusionscope.rules.graph import MutableModule
from fusionscope.rules.rule import RuleBook

# Each rule with the book that it is in, by the newest version that has it.
RULES: dict[str, tuple[str, RuleBook[Any]]] = {}
for version, books in GPU_BOOKS.items():
    for book in books:
        for rule in book:
            RULES.setdefault(rule.id, (version, book))
ELSEWHERE = {id for id, _ in OF_PRIORITY_FUSION} | {
    id for id, (_, book) in RULES.items() if id.startswith(("inplace-", "budget-", "base-"))
}
CASES = [(id, example) for id in RULES if id not in ELSEWHERE for example in read_examples(id)]
# By them the pass never comes to the pair.
SILENT = ("mof-order", "mof-parent", "mof-sibling-cand")
NEVER_LAST = ("sm-root-producer", "leg-pc-mof")  # other rules refuse all of it before


def plan_of(id: str, example: Example, changed: RuleBook[Any] | None = None) -> FusionPlan:
    version, own = RULES[id]
    book = changed or own
    graph = MutableModule(parse(example.text))
    target = GpuTarget(H100, GPU_SETTINGS[version])
    return replay_gpu(book.pass_name, graph, target, (book,))


def check(id: str, example: Example, changed: RuleBook[Any] | None = None) -> None:
    """By a ``changed`` book, where one is given."""
    pair = (example.producer, example.consumer or example.producer)
    decisions = plan_of(id, example, changed).decisions
    found = {each.decision.rule for each in decisions if (each.producer, each.consumer) == pair}
    if id in SILENT and example.is_decided:
        assert not found
        return
    assert found, "the pass never came to the pair"
    assert (id in found) == example.is_decided
    assert example.instead is None or example.instead in found


@pytest.mark.parametrize(("id", "example"), CASES, ids=[f"{i}: {e.why}" for i, e in CASES])
def test_a_rule_decides_what_its_examples_say(id: str, example: Example) -> None:
    check(id, example)


@pytest.mark.parametrize("id", [id for id in RULES if id not in ELSEWHERE])
def test_every_rule_has_an_example_of_either_kind(id: str) -> None:
    kinds = {example.is_decided for example in read_examples(id)}
    assert kinds == (set() if id in NEVER_LAST else {True, False})
