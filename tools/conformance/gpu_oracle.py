"""Holds the rules of priority fusion, and their examples, against the compiler itself.

    python tools/conformance/gpu_oracle.py --python PATH

``PATH`` is a Python that has jax and its plugin for CUDA; no GPU is needed. It runs the pass on
each example for an H100, and the record and the module afterwards have to be those of the replay.
Of the pair that the example is about they have to say what the example says. Prints a line for each
example; fails where one differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter

from gpu_compiling import Recorded, record_all
from gpu_examples import EXAMPLES, ONLY_HERE, is_constant, reads, replay

from fusionscope.dump.priority_fusion import Fused, Ineligible, Priority
from fusionscope.gpu.emitters import is_generic_triton
from fusionscope.graph.comparison import find_divergence
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module, parse
from fusionscope.passes.gpu.priority_fusion.record import compare_with_record
from fusionscope.passes.inplace import IN_PLACE_RULES
from fusionscope.rules.examples import Example
from fusionscope.rules.messages import rule_of
from fusionscope.rules.pages import read_examples

OWN = [*EXAMPLES, *((ONLY_HERE, example) for example in read_examples(ONLY_HERE, "on GPUs"))]
# What these say is what CPU fusion decides, and of its fusions: only the steps are compared.
OF_CPU = [(rule.id, example) for rule in IN_PLACE_RULES for example in read_examples(rule.id)]


def plain(name: str) -> str:
    """Without the number that a name gets on its way through StableHLO."""
    return re.sub(r"\.\d+$", "", name)


def said_of_pair(example: Example, recorded: Recorded, after: Module) -> set[str]:
    """The rules that decided, as the record has it; an empty word where the two were fused, and
    nothing at all where the record says nothing."""
    if is_constant(example):
        return {"pf-constants" if reads(example, after) else ""}
    found: set[str] = set()
    benefit = 0.0
    for step in recorded.record.steps:
        if plain(step.producer) != example.producer:
            continue
        if isinstance(step, Fused):
            if plain(step.consumer) == example.consumer:
                return {""}
        elif isinstance(step, Ineligible):
            found.add(rule_of(step.reason, "PriorityFusion"))
        elif isinstance(step, Priority):
            benefit = step.unfused_us - step.fused_us
    return found or ({"pf-negative"} if benefit < 0 else set())


def expected(id: str, example: Example) -> str:
    decides = id if example.is_decided else example.instead or ""
    if is_constant(example) and decides:
        return "pf-constants"
    return decides


def compare(id: str, example: Example, found: Recorded | str, *, is_own: bool) -> str:
    """A few words, and behind a colon what is the matter."""
    if isinstance(found, str):
        return f"could not be compiled: {found.partition(chr(10))[0][:100]}"
    # Other texts leave out what is in a constant that is a tuple.
    text = re.sub(r"constant\(\(.*\)\)", "constant({...})", found.record.module_before_fusion())
    before = parse(text)
    after = parse(found.after) if found.after else before
    plan = replay(before)
    triton = [each.name for each in MutableModule(before).walk() if is_generic_triton(each)]
    steps = compare_with_record(plan.events, found.record.steps, triton)
    if steps.first is not None:
        return f"differs: {steps.first[0]} here, {steps.first[1]} in the compiler"
    divergence = find_divergence(plan.module, after)
    if divergence is not None:
        return f"differs: {divergence.ours} here, {divergence.theirs} in the compiler"
    if not is_own:
        return "agrees in all steps"
    said, wanted = said_of_pair(example, found, after), expected(id, example)
    if wanted in said:
        return "agrees"
    if wanted == "pf-all-users" and said:  # it is recorded with the words of the other consumer
        return "agrees"
    if not said:
        return "agrees, but nothing is recorded of the pair"
    return f"differs: {wanted or 'fused'} here, {' and '.join(sorted(said))} in the compiler"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--python", required=True, help="a Python that has jax, with CUDA")
    python = parser.parse_args().python
    examples = [*((True, *each) for each in OWN), *((False, *each) for each in OF_CPU)]
    records = record_all(python, [each.text for _, _, each in examples])
    counts: Counter[str] = Counter()
    for (is_own, id, example), found in zip(examples, records, strict=True):
        result = compare(id, example, found, is_own=is_own)
        counts[result.partition(":")[0]] += 1
        print(f"{id}: {example.why}: {result}")
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    sys.exit("differs" in counts or counts["agrees"] == 0)


if __name__ == "__main__":
    main()
