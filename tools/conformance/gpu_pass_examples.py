"""The examples of the rules of the passes around priority fusion, and whether a book decides them
so on an H100."""

from __future__ import annotations

from typing import Any

from gpu_examples import EXAMPLES as OF_PRIORITY_FUSION
from gpu_examples import H100

from fusionscope.gpu.model import GpuModel
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import parse
from fusionscope.passes.context import GpuTarget, PassContext
from fusionscope.passes.fusion_pass import pass_of
from fusionscope.passes.plan import FusionPlan
from fusionscope.passes.rule import RuleBook
from fusionscope.rules.examples import Example
from fusionscope.rules.pages import read_examples
from fusionscope.versions.known import all_compilers, load_compiler

# Each rule with the book that it is in, by the newest version that has it.
RULES: dict[str, tuple[str, RuleBook[Any]]] = {}
for compiler in all_compilers():
    for book in compiler.books if compiler.backend == "gpu" else ():
        for rule in book:
            RULES.setdefault(rule.id, (compiler.name, book))
ELSEWHERE = {id for id, _ in OF_PRIORITY_FUSION} | {
    id for id, (_, book) in RULES.items() if id.startswith(("inplace-", "budget-", "base-"))
}
CASES = [(id, example) for id in RULES if id not in ELSEWHERE for example in read_examples(id)]
# By them the pass never comes to the pair.
SILENT = ("mof-order", "mof-parent", "mof-sibling-cand")


def model_of(version: str) -> GpuModel:
    model = load_compiler(version).gpu
    assert model is not None
    return model


def plan_of(id: str, example: Example, changed: RuleBook[Any] | None = None) -> FusionPlan:
    version, own = RULES[id]
    book = changed or own
    graph = MutableModule(parse(example.text))
    target = GpuTarget(device=H100, gpu_model=model_of(version))
    return pass_of(book).run(graph, PassContext(gpu=target))


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
