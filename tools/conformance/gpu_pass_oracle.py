"""Holds the rules of the passes around priority fusion, and their examples, against the compiler.

    python tools/conformance/gpu_pass_oracle.py --python PATH [--only PASS]

``PATH`` is a Python that has jax and its plugin for CUDA; no GPU is needed. Each pass that the
rules of its version are about runs on their examples alone, for an H100, and what it makes of them
has to be what the replay makes. What the compiler says of the pair that an example is about, in its
log or its Fusion Explorer record, has to be what the rule says. Prints a line for each example;
fails where one differs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator

from cpu_compiling import version_of
from gpu_compiling import Ran, run_all
from gpu_oracle import plain
from gpu_pass_examples import CASES, RULES
from gpu_pass_records import difference, replay

from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module, parse
from fusionscope.passes.plan import FusionPlan
from fusionscope.rules.examples import Example
from fusionscope.versions.known import load_compiler


def opcodes(module: Module) -> Counter[str]:
    return Counter(each.opcode for each in MutableModule(module).walk())


def compare(version: str, id: str, example: Example, found: Ran | str) -> Iterator[str]:
    """A few words for each run of the pass, and behind a colon what is the matter."""
    if isinstance(found, str):
        yield f"could not be compiled: {found.partition(chr(10))[0][:100]}"
        return
    pass_name = RULES[id][1].pass_name
    pair = (example.producer, example.consumer or example.producer)
    is_first = True
    for before, after in found.runs:
        plan = replay(load_compiler(version).find(pass_name).book, version, parse(before))
        differs = difference(plan.module, parse(after))
        if differs is not None:
            yield f"differs: {differs}"
        elif not is_first:
            yield "agrees when run again"
        elif opcodes(parse(before)) != opcodes(parse(example.text)):
            yield "agrees, but the module was changed on the way"
        else:
            yield compare_reasons(plan, pair, found.said)
        is_first = False


def compare_reasons(plan: FusionPlan, pair: tuple[str, str], said: tuple[str, ...]) -> str:
    """What the module shows is the same; left is why the pair was not fused."""
    reasons = {
        each.decision.message
        for each in plan.decisions
        if (plain(each.producer), plain(each.consumer)) == pair and not each.decision.allow
    }
    reasons.discard("")
    if not reasons:
        return "agrees"
    about = [line for line in said if any(name in line for name in (*pair, "Not fusing: "))]
    if any(reason in line for line in about for reason in reasons):
        return "agrees with the reason"
    return f"agrees, but the reason is not said: {' and '.join(sorted(reasons))}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--python", required=True, help="a Python that has jax, with CUDA")
    parser.add_argument("--only", metavar="PASS", help="the examples of one pass")
    options = parser.parse_args()
    version = "gpu-" + ".".join(version_of(options.python).split(".")[:2])
    counts: Counter[str] = Counter()
    for book in load_compiler(version).books:
        if options.only not in (None, book.pass_name):
            continue
        cases = [(id, each) for id, each in CASES if book.find(id) is not None]
        texts = [each.text for _, each in cases]
        ran = run_all(options.python, book.pass_name, texts) if cases else []
        for (id, example), found in zip(cases, ran, strict=True):
            for result in compare(version, id, example, found):
                counts[result.partition(":")[0]] += 1
                print(f"{id}: {example.why}: {result}")
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    sys.exit("differs" in counts or not any(each.startswith("agrees") for each in counts))


if __name__ == "__main__":
    main()
