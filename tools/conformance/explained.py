"""Holds the explanations of dumps against what must be true of any explanation.

Each of DUMPS is a dump, or a directory with dumps in it, made by a compiler whose rules are known.
All of it can be read and nothing is missing, so there is no problem and no note. Only a pair that
is not fused has a reason. Prints the outcomes and reasons of each dump. Exits with 1 where
something is not so, and where no pair of any dump is fused.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from conformance.findings import Finding, add_dumps, counted, problem
from conformance.outcomes import dumps
from fusionscope.dump import open_dump
from fusionscope.explain import Explanation, Selection, explain
from fusionscope.history import Outcome


def faults(explanation: Explanation) -> Iterator[str]:
    yield from explanation.problems
    for module in explanation.modules:
        yield from module.notes
        for pair in module.pairs:
            if pair.reason and pair.outcome is not Outcome.NOT_FUSED:
                yield f"{pair.producer.name} -> {pair.consumer.name}: {pair.outcome}, {pair.reason}"


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)


def findings(options: Namespace) -> Iterator[Finding]:
    is_any_fused = False
    for path in (dump for root in options.dumps for dump in dumps(root)):
        explanation = explain(open_dump(path), Selection(all_modules=True))
        for pair in (pair for module in explanation.modules for pair in module.pairs):
            is_any_fused = is_any_fused or pair.outcome is Outcome.FUSED
            yield counted(f"{pair.outcome} {pair.reason or ''}".rstrip())
        yield from (problem("faults", f"{path}: {fault}") for fault in faults(explanation))
    if not is_any_fused:
        yield problem("faults", "no pair of any dump is fused")
