"""For which refused pairs a report offers to write one kernel by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fusionscope.errors import UnusableInput
from fusionscope.findings.suggestions.sheet import is_without_help

if TYPE_CHECKING:
    from fusionscope.dump import Dump, DumpedModule
    from fusionscope.facts.result import Explanation, ModuleFacts

_MOST_SKETCHES = 100  # in one module


def with_sketches(dump: Dump, explanation: Explanation, limit: int | None) -> Explanation:
    """Return ``explanation`` with the refused pairs that can be written as one kernel, as far as a
    report shows them: up to ``limit`` of each list, None for all.
    """
    modules = {(module.name, module.number): module for module in dump.modules}
    return replace(
        explanation,
        modules=tuple(
            _with_sketches(modules[facts.name, facts.number], facts, limit)
            for facts in explanation.modules
        ),
    )


def _with_sketches(module: DumpedModule, facts: ModuleFacts, limit: int | None) -> ModuleFacts:
    suggestions = facts.suggestions
    pairs = dict.fromkeys(_shown_pairs(facts, limit)) if suggestions is not None else {}
    if suggestions is None or not pairs or module.final is None:
        return facts
    # What these import takes longer than to show what an earlier run has found.
    from fusionscope.sketch.kernels import PairKernels
    from fusionscope.sketch.sketch import sketch

    final = module.read(module.final)
    kernels_of = PairKernels(module)
    can_be_written: dict[tuple[str, ...], bool] = {(): False}
    sketched = set()
    for producer, consumer in pairs:
        kernels = kernels_of.of(producer, consumer)
        if kernels not in can_be_written:
            if len(can_be_written) > _MOST_SKETCHES:
                break
            try:
                sketch(final, kernels)
                can_be_written[kernels] = True
            except UnusableInput:
                can_be_written[kernels] = False
        if can_be_written[kernels]:
            sketched.add((producer, consumer))
    return replace(facts, suggestions=replace(suggestions, sketched=frozenset(sketched)))


def _shown_pairs(facts: ModuleFacts, limit: int | None) -> Iterator[tuple[str, str]]:
    alike = (*facts.alike.refusals[:limit], *facts.alike.fused_by_later_pass[:limit])
    examples = (refusals.example for refusals in alike)
    for pair in itertools.chain(examples, facts.pairs[:limit]):
        if is_without_help(facts.suggestions, pair):
            yield pair.producer.name, pair.consumer.name
