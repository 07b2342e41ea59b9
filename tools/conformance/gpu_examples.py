"""The examples of the rules of priority fusion, and whether a book decides them so on an H100.

An example that names no other rule that decides instead is about a pair that is fused.
"""

from __future__ import annotations

from pathlib import Path

from fusionscope.dump.device import Device, read_device
from fusionscope.gpu.state import GpuState
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module, parse
from fusionscope.passes.gpu.priority_fusion.rules import GPU_FUSION
from fusionscope.passes.gpu.priority_fusion.run import PriorityFusion
from fusionscope.passes.inplace import IN_PLACE_RULES
from fusionscope.passes.plan import FusionPlan
from fusionscope.passes.rule import Rule, RuleBook
from fusionscope.rules.examples import Example
from fusionscope.rules.pages import read_examples
from fusionscope.versions.jaxlib_0_12.gpu import GPU_0_12

EXAMPLES = [
    (rule.id, example)
    for rule in GPU_FUSION
    if rule not in IN_PLACE_RULES
    for example in read_examples(rule.id)
]
# A rule that CPU fusion has too, but that others decide before there.
ONLY_HERE = "inplace-multi-nonelementwise"

Book = RuleBook[Rule]


def read_card(name: str) -> Device:
    file = Path(__file__).resolve().parents[2] / "samples" / "devices" / f"{name}.txtpb"
    return read_device(file.read_bytes(), file.name)


H100 = read_card("h100")


def replay(module: Module, book: Book = GPU_FUSION, device: Device = H100) -> FusionPlan:
    graph = MutableModule(module)
    return PriorityFusion(graph=graph, book=book, state=GpuState(device, GPU_0_12)).run()


def is_constant(example: Example) -> bool:
    entry = parse(example.text).entry
    return any(
        each.name == example.producer and each.opcode == "constant" for each in entry.instructions
    )


def reads(example: Example, after: Module) -> bool:
    """Whether the consumer still reads a constant from elsewhere."""
    return any(
        each.name.partition(".")[0] == example.consumer
        and any(operand.opcode == "constant" for operand in each.operands)
        for each in after.entry.instructions
    )


def deciders(example: Example, plan: FusionPlan) -> set[str]:
    """The rules that decided the pair, each time that the pass came to it; no word where the two
    were fused."""
    return {
        "" if each.fusion is not None else each.decision.rule
        for each in plan.decisions
        if (each.producer, each.consumer) == (example.producer, example.consumer)
    }


def check(id: str, example: Example, book: Book = GPU_FUSION, device: Device = H100) -> None:
    plan = replay(parse(example.text), book, device)
    if is_constant(example):  # they are fused after all else
        assert reads(example, plan.module) == (example.is_decided or example.instead is not None)
    found = deciders(example, plan)
    assert found, "the pass never came to the pair"
    if example.is_decided:
        assert id in found
    else:
        assert id not in found
        assert (example.instead or "") in found
