"""Experiments on the refused pairs of a module."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput, quoted
from fusionscope.experiments.asking import Compiler
from fusionscope.experiments.experiment import Experiment, experiment
from fusionscope.explain.analyze_module import analyze_module
from fusionscope.explain.selection import matches
from fusionscope.facts.facts import Facts
from fusionscope.facts.pair_names import hint_at_pair
from fusionscope.facts.result import PairFacts
from fusionscope.history.outcomes import Outcome
from fusionscope.progress import Progress, silent

if TYPE_CHECKING:
    from fusionscope.hlo import Module
    from fusionscope.system.cache import Cache

UNKNOWN = "unknown"


class Examined(Facts, frozen=True):
    """A refused pair, the reason that its dump gives, ``bytes_saved`` that fusing it would save,
    and the experiment.

    reason: reason that the dump gives; ``unknown`` without one
    bytes_saved: bytes that fusing the pair would save
    experiment: the experiment
    """

    reason: str
    bytes_saved: int
    experiment: Experiment


class Experiments(Facts, frozen=True, tag_field="schema", tag="fusionscope.experiments/1"):
    """The experiments on pairs of ``module``, the costliest first.

    module: name of the module
    compiler: the compiler that answered, and its target
    matched: refused pairs that were meant
    asked: programs about which the compiler was asked
    compiled: those of them whose answers were not kept from earlier
    seconds: how long it took
    pairs: pairs that were asked about, the costliest first
    """

    module: str
    compiler: str
    matched: int
    asked: int
    compiled: int
    seconds: float
    pairs: tuple[Examined, ...]


def run_experiments(
    module: DumpedModule,
    pattern: str,
    *,
    top: int,
    python: str,
    limit_s: float,
    cache: Cache | None,
    progress: Progress = silent,
) -> Experiments:
    """Experiment on the ``top`` costliest pairs that ``pattern`` means: ``PRODUCER -> CONSUMER``,
    as globs of names or opcodes, or ``unknown`` for those without a reason. The compiler may take
    ``limit_s`` seconds for one program.

    Raises ``UnusableInput`` if the dump lacks the stage before fusion or the final one, no refused
    pair is meant, or there is no compiler for its target.
    """
    before, final = ends_of(module)
    facts = analyze_module(module, progress=progress).facts.pairs
    refused = [
        fact for fact in facts if fact.outcome == Outcome.NOT_FUSED and _is_meant(fact, pattern)
    ]
    if not refused:
        producer, _, consumer = (part.strip() for part in pattern.partition("->"))
        pairs = [fact for fact in facts if fact.outcome == Outcome.NOT_FUSED]
        raise UnusableInput(
            f"{module.name}: no refused pair matches {quoted(pattern)}",
            hint=hint_at_pair(producer, consumer, pairs) if consumer and pairs else None,
        )
    refused.sort(key=lambda pair_refused: -pair_refused.bytes_saved)
    begin = time.monotonic()
    examined = []
    with Compiler(module, python=python, limit_s=limit_s, cache=cache) as compiler:
        for pair in refused[:top]:
            names = pair.producer.name, pair.consumer.name
            progress(f"experiments on {names[0]} -> {names[1]}")
            result = experiment(before, final, *names, compiler)
            examined.append(Examined(pair.reason or UNKNOWN, pair.bytes_saved, result))
        seconds = time.monotonic() - begin
        return Experiments(
            module.name,
            compiler.words,
            len(refused),
            compiler.asked,
            compiler.compiled,
            seconds,
            tuple(examined),
        )


def ends_of(module: DumpedModule) -> tuple[Module, Module]:
    """Return the stage before fusion and the final one. Raises ``UnusableInput``."""
    if module.pre_fusion is None or module.final is None:
        raise UnusableInput(
            f"{module.name}: the dump lacks the stage before fusion or the final one",
            hint="dump with --xla_dump_hlo_pass_re=.*",
        )
    return module.read(module.pre_fusion), module.read(module.final)


def _is_meant(pair: PairFacts, pattern: str) -> bool:
    if pattern == UNKNOWN:
        return pair.reason in (None, UNKNOWN)
    producer, _, consumer = (part.strip() for part in pattern.partition("->"))
    return matches(pair.producer, producer) and matches(pair.consumer, consumer)
