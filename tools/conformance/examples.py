"""The examples of rules, and whether a book decides them as they say.

CPU fusion and priority fusion decide on pairs. The other passes ask about operations and siblings.
Some of their rules are about what happens, not asked about each operation; an example of theirs
says what the module looks like afterwards. Examples for GPUs are of an H100.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from conformance.findings import ROOT
from fusionscope.dump.device import Device, read_device
from fusionscope.gpu.model import GpuModel
from fusionscope.gpu.state import GpuState
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo import Module, parse
from fusionscope.passes.context import GpuTarget, PassContext
from fusionscope.passes.cpu.instruction_fusion.rules import CPU_FUSION, find_skipping
from fusionscope.passes.cpu.instruction_fusion.run import (
    CpuInstructionFusion,
    find_expense,
    find_skipped,
)
from fusionscope.passes.fusion_pass import pass_of
from fusionscope.passes.gpu.priority_fusion.rules import GPU_FUSION
from fusionscope.passes.gpu.priority_fusion.run import PriorityFusion
from fusionscope.passes.inplace import IN_PLACE_RULES
from fusionscope.passes.plan import FusionPlan
from fusionscope.passes.rule import RuleBook
from fusionscope.passes.state import FusionState
from fusionscope.rules.examples import Example
from fusionscope.rules.pages import read_examples
from fusionscope.versions.jaxlib_0_4_38.cpu import CPU_FUSION_0_4_38
from fusionscope.versions.jaxlib_0_5_3.cpu import CPU_FUSION_0_5_3
from fusionscope.versions.jaxlib_0_6_2.cpu import CPU_FUSION_0_6_2
from fusionscope.versions.jaxlib_0_9_0.cpu import CPU_FUSION_0_9_0
from fusionscope.versions.jaxlib_0_10_0.cpu import CPU_FUSION_0_10_0
from fusionscope.versions.jaxlib_0_11_2.cpu import CPU_FUSION_0_11
from fusionscope.versions.jaxlib_0_12.gpu import GPU_0_12
from fusionscope.versions.known import all_compilers, load_compiler

Book = RuleBook[Any]


def read_card(name: str) -> Device:
    file = ROOT / "samples" / "devices" / f"{name}.txtpb"
    return read_device(file.read_bytes(), file.name)


H100 = read_card("h100")

# CPU fusion.

CPU_EXAMPLES = [(rule.id, example) for rule in CPU_FUSION for example in read_examples(rule.id)]
OLDER_CPU_EXAMPLES: list[tuple[str, Example, Book]] = [
    (id, example, book)
    for id, condition, book in [
        ("cpu-concat", "before jaxlib 0.12", CPU_FUSION_0_11),
        ("cpu-expensive-reuse", "before jaxlib 0.9.1", CPU_FUSION_0_9_0),
        ("cpu-skip-custom", "before jaxlib 0.10.1", CPU_FUSION_0_10_0),
        ("cpu-skip-custom", "before jaxlib 0.7", CPU_FUSION_0_6_2),
        ("cpu-concat", "before jaxlib 0.5", CPU_FUSION_0_4_38),
        ("cpu-skip-custom", "before jaxlib 0.5", CPU_FUSION_0_4_38),
        ("cpu-nonscalar-constant", "before jaxlib 0.7", CPU_FUSION_0_6_2),
        ("cpu-major-reduction", "", CPU_FUSION_0_5_3),
    ]
    for example in read_examples(id, condition)
]


def replay_cpu(module: Module, book: Book = CPU_FUSION) -> FusionPlan:
    graph = MutableModule(module)
    skipped = find_skipped(graph, find_skipping(book))
    state = FusionState(is_expensive=find_expense(book), skipped=skipped)
    return CpuInstructionFusion(graph, book, state, None).run()


def cpu_deciders(example: Example, book: Book = CPU_FUSION) -> list[str]:
    """The rules that decided the pair, each time that the pass came to it."""
    return [
        decision.decision.rule
        for decision in replay_cpu(parse(example.text), book).decisions
        if (decision.producer, decision.consumer) == (example.producer, example.consumer)
    ]


def check_cpu(id: str, example: Example, book: Book = CPU_FUSION) -> None:
    deciders = cpu_deciders(example, book)
    assert deciders, "the pass never came to the pair"
    assert (id in deciders) == example.is_decided
    if example.is_decided:
        assert example.is_allowed == all(rule.only_allows for rule in book if rule.id == id)
    else:
        assert example.instead in deciders


# The other passes for CPUs, by the newest version.

OPERATION_BOOKS: tuple[Book, ...] = tuple(
    book
    for book in next(each for each in all_compilers() if each.backend == "cpu").books
    if book is not CPU_FUSION
)
OPERATION_EXAMPLES = [
    (book, rule.id, example)
    for book in OPERATION_BOOKS
    for rule in book
    for example in read_examples(rule.id)
]
# Rules whose examples state whether operations end up in a library fusion, and what the rule
# decides: that they do (True), or that they do not.
ENDS_INSIDE = {
    "lib-starters": True,
    "lib-individual": False,
    "lib-grow": True,
    "lib-trailing-moves": False,
}
# Rules because of which the pass never comes to two siblings.
NEVER_MEET = {"cpu-mof-worklist", "cpu-mof-fusible"}
_NUMBER = re.compile(r"\.\d+$")


def library_fusions(plan: FusionPlan) -> Iterator[MutableInstruction]:
    for computation in MutableModule(plan.module).post_order():
        for instruction in computation.post_order():
            if instruction.is_custom_fusion:
                yield instruction


def _replay_operations(example: Example, book: Book) -> FusionPlan:
    """By the types of library fusions that the example names: ``// types: DOT, ELTWISE``."""
    types = re.search(r"^// types: (.+)$", example.text, re.MULTILINE)
    context = PassContext(frozenset(types[1].split(", "))) if types else PassContext()
    return pass_of(book).run(MutableModule(parse(example.text)), context)


def check_operation(id: str, example: Example, book: Book) -> None:
    plan = _replay_operations(example, book)
    pair = example.producer, example.consumer or example.producer
    if id in ENDS_INSIDE:
        contents = [
            {_NUMBER.sub("", instruction.name) for instruction in fusion.fused.instructions}
            for fusion in library_fusions(plan)
        ]
        inside = any(set(pair) <= names for names in contents)
        assert inside == (example.is_decided == ENDS_INSIDE[id])
        return
    decisions = {
        (decision.decision.rule, decision.decision.allow, decision.fusion is not None)
        for decision in plan.decisions
        if (decision.producer, decision.consumer) == pair
    }
    if id in NEVER_MEET and example.is_decided:
        pairs_met = {(decision.producer, decision.consumer) for decision in plan.decisions}
        assert not decisions and pair[::-1] not in pairs_met
    elif example.is_decided:
        assert (id, example.is_allowed, example.is_allowed) in decisions
    else:
        rules = {rule for rule, *_ in decisions}
        assert rules, "the pass never came to it"
        assert id not in rules
        assert example.instead is None or example.instead in rules


# Priority fusion.

GPU_EXAMPLES = [
    (rule.id, example)
    for rule in GPU_FUSION
    if rule not in IN_PLACE_RULES
    for example in read_examples(rule.id)
]
# A rule that CPU fusion has too, but that others decide before there.
ONLY_HERE = "inplace-multi-nonelementwise"


def replay_gpu(module: Module, book: Book = GPU_FUSION, device: Device = H100) -> FusionPlan:
    graph = MutableModule(module)
    return PriorityFusion(graph=graph, book=book, state=GpuState(device, GPU_0_12)).run()


def is_constant(example: Example) -> bool:
    entry = parse(example.text).entry
    return any(
        instruction.name == example.producer and instruction.opcode == "constant"
        for instruction in entry.instructions
    )


def reads(example: Example, after: Module) -> bool:
    """Whether the consumer still reads a constant from elsewhere."""
    return any(
        instruction.name.partition(".")[0] == example.consumer
        and any(operand.opcode == "constant" for operand in instruction.operands)
        for instruction in after.entry.instructions
    )


def gpu_deciders(example: Example, plan: FusionPlan) -> set[str]:
    """The rules that decided the pair, each time that the pass came to it; no word where the two
    were fused."""
    return {
        "" if decision.fusion is not None else decision.decision.rule
        for decision in plan.decisions
        if (decision.producer, decision.consumer) == (example.producer, example.consumer)
    }


def check_gpu(id: str, example: Example, book: Book = GPU_FUSION, device: Device = H100) -> None:
    """An example that names no other rule that decides instead is about a pair that is fused."""
    plan = replay_gpu(parse(example.text), book, device)
    if is_constant(example):  # they are fused after all else
        assert reads(example, plan.module) == (example.is_decided or example.instead is not None)
    deciders = gpu_deciders(example, plan)
    assert deciders, "the pass never came to the pair"
    assert (id in deciders) == example.is_decided
    assert example.is_decided or (example.instead or "") in deciders


# The passes around priority fusion: each rule with the book that it is in, by the newest version
# that has it; those of the passes that it replaced, by the newest version without it.

PASS_RULES: dict[str, tuple[str, Book]] = {}
for compiler in all_compilers():
    for book in compiler.books if compiler.backend == "gpu" else ():
        for rule in book:
            if not (compiler.has_priority_fusion and rule.id.startswith("leg-")):
                PASS_RULES.setdefault(rule.id, (compiler.name, book))
ELSEWHERE = {id for id, _ in GPU_EXAMPLES} | {
    id for id in PASS_RULES if id.startswith(("inplace-", "budget-", "base-"))
}
PASS_EXAMPLES = [
    (id, example) for id in PASS_RULES if id not in ELSEWHERE for example in read_examples(id)
]
# By them the pass never comes to the pair.
SILENT = ("mof-order", "mof-parent", "mof-sibling-cand")


def model_of(version: str) -> GpuModel:
    model = load_compiler(version).gpu
    assert model is not None
    return model


def replay_pass(book: Book, version: str, before: Module) -> FusionPlan:
    context = PassContext(gpu=GpuTarget(device=H100, gpu_model=model_of(version)))
    return pass_of(book).run(MutableModule(before), context)


def plan_of(id: str, example: Example, changed: Book | None = None) -> FusionPlan:
    version, book = PASS_RULES[id]
    return replay_pass(changed or book, version, parse(example.text))


def check_pass(id: str, example: Example, changed: Book | None = None) -> None:
    """By a ``changed`` book, where one is given."""
    pair = (example.producer, example.consumer or example.producer)
    decisions = plan_of(id, example, changed).decisions
    rules = {
        decision.decision.rule
        for decision in decisions
        if (decision.producer, decision.consumer) == pair
    }
    if id in SILENT and example.is_decided:
        assert not rules
        return
    assert rules, "the pass never came to the pair"
    assert (id in rules) == example.is_decided
    assert example.instead is None or example.instead in rules
