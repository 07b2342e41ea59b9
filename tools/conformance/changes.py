"""Draws changes from what `explain` shows, and lets the compiler carry them out.

Each of DUMPS is a dump, or a directory with dumps in it. The four kinds of change take turns:
allow a refused pair, forbid a fused one, set a threshold of a rule that refused a pair, disable
such a rule. It has to be carried out: the final module is as planned, the change is found in it,
and its launches, bytes and estimated time are those that `explain` predicts, unless it says that
they may be off. Or it is refused before the compiler runs, with the rule or pass named.

Only dumps of the version that PATH has are used. Prints a line for each change, then the counts.
Exits with 1 if a change was neither carried out nor refused.
"""

import random
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.compiling import version_of
from conformance.findings import Finding, add_dumps, counted, problem
from conformance.outcomes import dumps
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain.explain import explain_module
from fusionscope.facts.suggestions import Figures
from fusionscope.history.outcomes import TOGETHER, Outcome
from fusionscope.rerun.plans import Rest, require_start
from fusionscope.rerun.programs import find_program, find_target
from fusionscope.rerun.rerun import Rerun, rerun
from fusionscope.rerun.trial import make_variant
from fusionscope.rules.changes import Changes, read_changes
from fusionscope.versions.choice import choose_compiler
from fusionscope.what_if.what_if import what_if

KINDS = ("allow", "forbid", "set", "disable")
NEW_VALUES = (0, 1, 2, 1 << 10, 1 << 20)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A change of one module, as options of ``explain`` and ``rerun``."""

    path: Path
    module: DumpedModule
    option: str
    value: str

    @property
    def changes(self) -> Changes:
        options: dict[str, list[str]] = {kind: [] for kind in KINDS}
        options[self.option].append(self.value)
        return read_changes(options["set"], options["disable"], options["allow"], options["forbid"])

    def __str__(self) -> str:
        return f"{self.path} --module {self.module.number} --{self.option} '{self.value}'"


class Source:
    """Draws changes of random modules."""

    def __init__(self, paths: list[Path], backend: str, versions: list[str], seed: int) -> None:
        self._paths = paths
        self._backend = backend
        self._versions = versions
        self._random = random.Random(seed)
        self._shown: dict[Path, tuple[DumpedModule, dict[str, list[str]]] | None] = {}

    def draw(self, option: str) -> Drawn:
        """Raises ``IndexError`` if no dump can be used."""
        while True:
            path = self._random.choice(self._paths)
            if path not in self._shown:
                self._shown[path] = self._show(path)
            facts_and_options = self._shown[path]
            if facts_and_options is None:
                self._paths.remove(path)
            elif facts_and_options[1][option]:
                return Drawn(
                    path,
                    facts_and_options[0],
                    option,
                    self._random.choice(facts_and_options[1][option]),
                )

    def _show(self, path: Path) -> tuple[DumpedModule, dict[str, list[str]]] | None:
        """Return the module with the most stages, and what ``explain`` shows of it, by option; None
        if nothing can be recompiled.
        """
        try:
            module = max(open_dump(path).modules, key=lambda candidate: len(candidate.stages))
            if module.backend != self._backend or is_other_version(module, self._versions):
                return None
            find_program(module)
            find_target(module)
            require_start(module)
            return module, dict(self._options(module))
        except UnusableInput:
            return None

    def _options(self, module: DumpedModule) -> Iterator[tuple[str, list[str]]]:
        pairs = explain_module(module).pairs
        refused = [pair for pair in pairs if pair.outcome is Outcome.NOT_FUSED]
        fused = [pair for pair in pairs if pair.outcome in TOGETHER]
        rule_ids = {pair.reason for pair in refused}
        rule_ids |= {pair.fused_by_later_pass.reason for pair in fused if pair.fused_by_later_pass}
        compiler = choose_compiler(module).compiler
        rules = [rule for id in sorted(filter(None, rule_ids)) if (rule := compiler.find_rule(id))]
        yield "allow", [f"{pair.producer.name} -> {pair.consumer.name}" for pair in refused]
        yield "forbid", [f"{pair.producer.name} -> {pair.consumer.name}" for pair in fused]
        yield "disable", [rule.id for rule in rules]
        yield (
            "set",
            [
                f"{rule.id}.{name}={self._random.choice((value // 2, value * 2, *NEW_VALUES))}"
                for rule in rules
                for name, value in rule.thresholds.items()
            ],
        )


def follow(drawn: Drawn, python: str) -> tuple[str, str]:
    """Return what came of a change, and details."""
    try:
        predicted = what_if(drawn.module, drawn.changes)
    except UnusableInput as refusal:
        return "not predicted", str(refusal)
    try:
        variant = make_variant(drawn.module, "changed", drawn.changes, Rest.RULES, ())
        with TemporaryDirectory() as scratch:
            again = rerun(
                drawn.module, variant.plan, Path(scratch), flags=variant.flags, python=python
            )
    except UnusableInput as refusal:
        return "refused", str(refusal)
    if again.variant is None:
        return "not compiled", again.problem
    missed = [
        f"{request.words}: {request.problem}" for request in again.requests if request.problem
    ]
    if missed:
        return "not done", "; ".join(missed)
    if not again.is_as_planned:
        return "other fusions", f"{again.unplanned[:3]} {again.divergence}"
    if predicted.final is None:
        return "without a prediction", ""
    made_figures, predicted_figures = figures(again), predicted.final[1]
    words = f"predicted {predicted_figures}, made {made_figures}"
    if is_equal(predicted_figures, made_figures):
        return "as predicted", words
    is_certain = variant.plan is not None and variant.plan.predicted is not None
    return ("other totals" if is_certain else "said to be uncertain"), words


def is_equal(first: Figures, second: Figures) -> bool:
    """Return whether two predictions are equal, but for the rounding of sums."""
    times = first.time_us, second.time_us
    if None not in times and not isclose(*times, rel_tol=1e-6):
        return False
    return (first.launches, first.bytes_moved) == (second.launches, second.bytes_moved)


def figures(again: Rerun) -> Figures:
    assert again.variant is not None
    time = again.estimates[1].microseconds if again.estimates is not None else None
    return Figures(again.variant.launches, again.variant.bytes_moved, time)


def is_other_version(module: DumpedModule, versions: Sequence[str]) -> bool:
    """Return whether none of these versions of jaxlib made the dump."""
    made_by = choose_compiler(module).version.removeprefix("jaxlib ").split(" or ")
    return not any(
        f"{version}.".startswith(f"{other_version}.")
        for version in versions
        for other_version in made_by
    )


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with jax")


def findings(options: Namespace) -> Iterator[Finding]:
    paths = [dump for root in options.dumps for dump in dumps(root)]
    if not paths:
        raise SystemExit(f"no dumps in {', '.join(map(str, options.dumps))}")
    source = Source(paths, options.backend, [version_of(options.python)], options.seed)
    for number in range(options.count):
        drawn = source.draw(KINDS[number % len(KINDS)])
        verdict, details = follow(drawn, options.python)
        is_right = verdict in ("as predicted", "said to be uncertain", "refused")
        yield (counted if is_right else problem)(verdict, f"{verdict}: {drawn}: {details}")
