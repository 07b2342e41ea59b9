"""Holds the rules of CPU fusion, and their examples, against the compiler itself.

    python tools/conformance/cpu_oracle.py --python PATH

``PATH`` is a Python that has jax. It compiles each example with all passes left out but the fusion
pass, whose own record says what it decided of every pair, in order. The replay of the module that
the pass saw has to say the same, and the pair that the example is about has to be decided by the
rule that the example names. Prints a line for each example; fails where one differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from cpu_compiling import compile_all, compiler_of, version_of
from cpu_examples import EXAMPLES, Book, replay

from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.fusion_explorer import Kind, with_fused
from fusionscope.hlo import Module
from fusionscope.passes.cpu.instruction_fusion.rules import CPU_FUSION
from fusionscope.rules.examples import Example

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
        found: list[Decided] = []
        for decision, fused in with_fused(record.decisions):
            if fused is not None:
                found.append((*fused, _FUSED))
            elif decision.kind is Kind.REFUSED and decision.producer and decision.consumer:
                reason = decision.reason.partition(" ; ")[0]
                found.append((decision.producer, decision.consumer, reason))
        lists.append(found)
    return sorted(filter(None, lists))


def replayed(module: Module, book: Book) -> list[list[Decided]]:
    """The same of the replay."""
    lists: dict[str, list[Decided]] = defaultdict(list)
    for each in replay(module, book).decisions:
        if each.is_recorded:
            said = _FUSED if each.decision.allow else each.decision.message
            lists[each.computation].append((each.producer, each.consumer, said))
    return sorted(lists.values())


def seen_by_pass(module: DumpedModule) -> Module | None:
    """The module before the fusion pass, None where the compiler did not come so far."""
    for stage in module.stages:
        at = stage.name.pipeline, stage.name.after
        if at == ("HLO_passes_after_layout_assignment", "pipeline-start"):
            return module.read(stage)
    return None


def expected(id: str, example: Example) -> str:
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
        said
        for found in decisions
        for producer, consumer, said in found
        if _plain(producer) in names and _plain(consumer) == example.consumer
    }


def _plain(name: str) -> str:
    return re.sub(r"\.\d+$", "", name)


def compare(
    id: str, example: Example, module: DumpedModule | None, problem: str, book: Book
) -> str:
    """A few words, and behind a colon what is the matter."""
    seen = None if module is None else seen_by_pass(module)
    if module is None or seen is None:
        return f"could not be compiled: {problem.partition(chr(10))[0][:100]}"
    theirs, wanted = recorded(module), expected(id, example)
    # Before 0.12 nothing is recorded where an effect follows the result.
    if wanted and not theirs:
        return "nothing was recorded"
    ours = replayed(seen, book)
    for one, other in zip_longest(chain(*ours), chain(*theirs)):
        if one != other:
            return f"differs: {one} here, {other} in the compiler"
    said = about_pair(example, theirs)
    if wanted in said or not (wanted or said):
        return "agrees"
    return "agrees on what came of the example on the way"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--python", required=True, help="a Python that has jax")
    python = parser.parse_args().python
    texts = [
        re.sub(r"HloModule \w+", f"HloModule example_{index}", example.text, count=1)
        for index, (_, example) in enumerate(EXAMPLES)
    ]
    counts: Counter[str] = Counter()
    book = compiler_of(version_of(python)).find(CPU_FUSION.pass_name).book
    with TemporaryDirectory() as scratch:
        problems = compile_all(python, _FLAGS, texts, Path(scratch))
        modules = {module.name: module for module in open_dump(Path(scratch) / "dump").modules}
        for index, ((id, example), problem) in enumerate(zip(EXAMPLES, problems, strict=True)):
            module = modules.get(f"example_{index}")
            result = compare(id, example, module, problem, book)
            counts[result.partition(":")[0]] += 1
            print(f"{id}: {example.why}: {result}")
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    sys.exit("differs" in counts or counts["agrees"] < 0.9 * len(EXAMPLES))


if __name__ == "__main__":
    main()
