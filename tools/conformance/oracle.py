"""Holds the rules, by their examples, against the compiler itself.

``PATH`` of ``--python`` is a Python that has jax, for the last two with its plugin for CUDA; no GPU
is needed.

- ``cpu``: each example is compiled with all passes left out but fusion, whose own record says what
  it decided of every pair, in order. The replay of what the pass saw has to say the same.
- ``gpu``: priority fusion runs on each example for an H100; its record, and the module afterwards,
  have to be those of the replay.
- ``passes``: each of the other passes for GPUs runs on its examples alone; what it makes of them
  has to be what the replay makes, and what it logs or records of a pair is what the rule says.

The pair that an example is about has to be decided by the rule that the example names.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.compiling import (
    Ran,
    Recorded,
    compile_all,
    compiler_of,
    gpu_compiler_of,
    record_all,
    run_all,
    version_of,
)
from conformance.examples import (
    CPU_EXAMPLES,
    GPU_EXAMPLES,
    ONLY_HERE,
    PASS_EXAMPLES,
    PASS_RULES,
    Book,
    is_constant,
    reads,
    replay_cpu,
    replay_gpu,
    replay_pass,
)
from conformance.findings import Finding, counted, problem
from conformance.records import difference
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.fusion_explorer import Kind, with_fused
from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority
from fusionscope.gpu.emitters import is_generic_triton
from fusionscope.graph.comparison import find_divergence
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module, parse
from fusionscope.passes.cpu.instruction_fusion.rules import CPU_FUSION
from fusionscope.passes.gpu.priority_fusion.record import compare_with_record
from fusionscope.passes.inplace import IN_PLACE_RULES
from fusionscope.passes.plan import FusionPlan
from fusionscope.rules.examples import Example
from fusionscope.rules.messages import rule_of
from fusionscope.rules.pages import read_examples
from fusionscope.versions.known import load_compiler


def plain(name: str) -> str:
    """Without the number that a name gets on its way."""
    return re.sub(r"\.\d+$", "", name)


def _uncompiled(why: str) -> str:
    return f"could not be compiled: {why.partition(chr(10))[0][:100]}"


# CPU fusion.

_FLAGS = (
    "--xla_enable_hlo_passes_only=fusion --xla_dump_hlo_as_text --xla_dump_fusion_visualization "
    "--xla_dump_hlo_pass_re=.*"
)
_FUSED = "fused"

# Producer, consumer, and what the compiler says of them.
Decided = tuple[str, str, str]


def recorded(module: DumpedModule) -> list[list[Decided]]:
    """What the compiler decided, a list for each computation."""
    lists = []
    for record in module.fusion_explorer:
        decided: list[Decided] = []
        for decision, fused in with_fused(record.decisions):
            if fused is not None:
                decided.append((*fused, _FUSED))
            elif decision.kind is Kind.REFUSED and decision.producer and decision.consumer:
                reason = decision.reason.partition(" ; ")[0]
                decided.append((decision.producer, decision.consumer, reason))
        lists.append(decided)
    return sorted(filter(None, lists))


def replayed(module: Module, book: Book) -> list[list[Decided]]:
    """The same of the replay."""
    lists: dict[str, list[Decided]] = defaultdict(list)
    for decision in replay_cpu(module, book).decisions:
        if decision.is_recorded:
            verdict = _FUSED if decision.decision.allow else decision.decision.message
            lists[decision.computation].append((decision.producer, decision.consumer, verdict))
    return sorted(lists.values())


def seen_by_pass(module: DumpedModule) -> Module | None:
    """The module before the fusion pass, None where the compiler did not come so far."""
    for stage in module.stages:
        at = stage.name.pipeline, stage.name.after
        if at == ("HLO_passes_after_layout_assignment", "pipeline-start"):
            return module.read(stage)
    return None


def cpu_expected(id: str, example: Example) -> str:
    """What the compiler has to say of the pair; empty where it says nothing."""
    decides = id if example.is_decided else example.instead
    rule = CPU_FUSION.find(decides or "")
    assert rule is not None
    return "" if rule.id == "base-eligible" else rule.message or _FUSED


def about_pair(example: Example, decisions: list[list[Decided]]) -> set[str]:
    """What is recorded of the example's own pair. The compiler numbers names, and calls each
    constant so."""
    names = {example.producer}
    if re.search(rf"\b{re.escape(example.producer)} = \S+ constant\(", example.text):
        names.add("constant")
    return {
        verdict
        for producer, consumer, verdict in chain(*decisions)
        if plain(producer) in names and plain(consumer) == example.consumer
    }


def compare_cpu(
    id: str, example: Example, module: DumpedModule | None, why: str, book: Book
) -> str:
    """A few words, and behind a colon what is the matter."""
    visited = None if module is None else seen_by_pass(module)
    if module is None or visited is None:
        return _uncompiled(why)
    theirs, expected = recorded(module), cpu_expected(id, example)
    # Before 0.12 nothing is recorded where an effect follows the result.
    if expected and not theirs:
        return "nothing was recorded"
    for ours, compiler_decision in zip_longest(chain(*replayed(visited, book)), chain(*theirs)):
        if ours != compiler_decision:
            return f"differs: {ours} here, {compiler_decision} in the compiler"
    verdicts = about_pair(example, theirs)
    if expected in verdicts or not (expected or verdicts):
        return "agrees"
    return "agrees on what came of the example on the way"


def _cpu(options: Namespace) -> Iterator[tuple[str, Example, str]]:
    texts = [
        re.sub(r"HloModule \w+", f"HloModule example_{index}", example.text, count=1)
        for index, (_, example) in enumerate(CPU_EXAMPLES)
    ]
    book = compiler_of(version_of(options.python)).find(CPU_FUSION.pass_name).book
    with TemporaryDirectory() as scratch:
        problems = compile_all(options.python, _FLAGS, texts, Path(scratch))
        modules = {module.name: module for module in open_dump(Path(scratch) / "dump").modules}
        for index, ((id, example), why) in enumerate(zip(CPU_EXAMPLES, problems, strict=True)):
            module = modules.get(f"example_{index}")
            yield id, example, compare_cpu(id, example, module, why, book)


# Priority fusion.


def said_of_pair(example: Example, found: Recorded, after: Module) -> set[str]:
    """The rules that decided, as the record has it; an empty word where the two were fused, and
    nothing at all where the record says nothing."""
    if is_constant(example):
        return {"pf-constants" if reads(example, after) else ""}
    rules: set[str] = set()
    benefit = 0.0
    for step in found.record.steps:
        if plain(step.producer) != example.producer:
            continue
        if isinstance(step, Fused):
            if plain(step.consumer) == example.consumer:
                return {""}
        elif isinstance(step, Ineligible):
            rules.add(rule_of(step.reason, "PriorityFusion"))
        elif isinstance(step, Priority):
            benefit = step.unfused_us - step.fused_us
    return rules or ({"pf-negative"} if benefit < 0 else set())


def gpu_expected(id: str, example: Example) -> str:
    decides = id if example.is_decided else example.instead or ""
    return "pf-constants" if is_constant(example) and decides else decides


def compare_gpu(id: str, example: Example, found: Recorded | str, *, is_own: bool) -> str:
    """A few words, and behind a colon what is the matter."""
    if isinstance(found, str):
        return _uncompiled(found)
    # Other texts leave out what is in a constant that is a tuple.
    text = re.sub(r"constant\(\(.*\)\)", "constant({...})", found.record.module_before_fusion())
    before = parse(text)
    after = parse(found.after) if found.after else before
    plan = replay_gpu(before)
    triton = [
        instruction.name
        for instruction in MutableModule(before).walk()
        if is_generic_triton(instruction)
    ]
    steps = compare_with_record(plan.events, found.record.steps, triton)
    if steps.first is not None:
        return f"differs: {steps.first[0]} here, {steps.first[1]} in the compiler"
    divergence = find_divergence(plan.module, after)
    if divergence is not None:
        return f"differs: {divergence.ours} here, {divergence.theirs} in the compiler"
    if not is_own:
        return "agrees in all steps"
    reasons, expected = said_of_pair(example, found, after), gpu_expected(id, example)
    # What all users have to take is recorded with the words of the other consumer.
    if expected in reasons or (expected == "pf-all-users" and reasons):
        return "agrees"
    if not reasons:
        return "agrees, but nothing is recorded of the pair"
    return f"differs: {expected or 'fused'} here, {' and '.join(sorted(reasons))} in the compiler"


def _gpu(options: Namespace) -> Iterator[tuple[str, Example, str]]:
    only_here = [(ONLY_HERE, example) for example in read_examples(ONLY_HERE, "on GPUs")]
    # What these say is what CPU fusion decides, and of its fusions: only the steps are compared.
    of_cpu = [(rule.id, example) for rule in IN_PLACE_RULES for example in read_examples(rule.id)]
    gpu_examples = [*GPU_EXAMPLES, *only_here]
    examples = [*gpu_examples, *of_cpu]
    records = record_all(options.python, [example.text for _, example in examples])
    for index, ((id, example), found) in enumerate(zip(examples, records, strict=True)):
        yield id, example, compare_gpu(id, example, found, is_own=index < len(gpu_examples))


# The passes around it.


def opcodes(module: Module) -> Counter[str]:
    return Counter(instruction.opcode for instruction in MutableModule(module).walk())


def compare_pass(version: str, id: str, example: Example, ran: Ran | str) -> Iterator[str]:
    """A few words for each run of the pass, and behind a colon what is the matter."""
    if isinstance(ran, str):
        yield _uncompiled(ran)
        return
    pass_name = PASS_RULES[id][1].pass_name
    pair = (example.producer, example.consumer or example.producer)
    for number, (before, after) in enumerate(ran.runs):
        book = load_compiler(version).find(pass_name).book
        plan = replay_pass(book, version, parse(before))
        differs = difference(plan.module, parse(after))
        if differs is not None:
            yield f"differs: {differs}"
        elif number:
            yield "agrees when run again"
        elif opcodes(parse(before)) != opcodes(parse(example.text)):
            yield "agrees, but the module was changed on the way"
        else:
            yield compare_reasons(plan, pair, ran.said)


def compare_reasons(plan: FusionPlan, pair: tuple[str, str], log_lines: tuple[str, ...]) -> str:
    """What the module shows is the same; left is why the pair was not fused."""
    reasons = {
        decision.decision.message
        for decision in plan.decisions
        if (plain(decision.producer), plain(decision.consumer)) == pair
        and not decision.decision.allow
    }
    reasons.discard("")
    if not reasons:
        return "agrees"
    about = [line for line in log_lines if any(name in line for name in (*pair, "Not fusing: "))]
    if any(reason in line for line in about for reason in reasons):
        return "agrees with the reason"
    return f"agrees, but the reason is not said: {' and '.join(sorted(reasons))}"


def _passes(options: Namespace) -> Iterator[tuple[str, Example, str]]:
    version = gpu_compiler_of(options.python)
    for book in load_compiler(version).books:
        cases = [(id, example) for id, example in PASS_EXAMPLES if book.find(id) is not None]
        if not cases or options.only not in (None, book.pass_name):
            continue
        ran = run_all(options.python, book.pass_name, [example.text for _, example in cases])
        for (id, example), run_of_pass in zip(cases, ran, strict=True):
            for result in compare_pass(version, id, example, run_of_pass):
                yield id, example, result


# Each with the share of examples that has to agree for anything to be proven.
KINDS = {"cpu": (_cpu, 0.9), "gpu": (_gpu, 0.1), "passes": (_passes, 0.1)}


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--python", default=sys.executable, metavar="PATH")
    parser.add_argument("--only", metavar="PASS", help="the examples of one of the other passes")


def findings(options: Namespace) -> Iterator[Finding]:
    compare, enough = KINDS[options.kind]
    counts: Counter[bool] = Counter()
    for id, example, result in compare(options):
        kind, line = result.partition(":")[0], f"{id}: {example.why}: {result}"
        counts[kind.startswith("agrees")] += 1
        yield (problem if kind == "differs" else counted)(kind, line)
    if counts[True] < enough * counts.total():
        yield problem("too few agree", f"only {counts[True]} of {counts.total()} agree")
