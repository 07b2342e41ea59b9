"""Judges experiments where the truth is known: is the cause that they find the rule's condition?

    python tools/conformance/experiments.py DUMP... --python PYTHON [--pairs 200] [--seed 0]

Draws refused pairs at random from all dumps, lets the compiler answer, and compares the first
change after which it fuses a pair with what the rule that refused it depends on. A pair may be
refused by several rules, of which the compiler reports the first: where the two differ, the
smallest cut in which the pair is refused is compiled and explained, and its rule counts. Prints a
line for each pair, and figures for each rule.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Program, ProgramKind
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.experiments.asking import Compiler, flags_for
from fusionscope.experiments.experiment import Experiment, experiment
from fusionscope.experiments.experiments import ends_of
from fusionscope.experiments.program import CONSUMER, PRODUCER
from fusionscope.explain.analyze import analyze
from fusionscope.history.outcomes import Outcome
from fusionscope.hlo import Module
from fusionscope.rerun.programs import find_target

WRONG = "WRONG"
_USERS = {"other users", "producer is a result"}
_KINDS = {
    "producer's operation",
    "producer's kind",
    "consumer's operation",
}
_COST = {"producer's operation"}  # what it costs to compute the producer
_LIBRARY = _KINDS | {"size", "element type", "dimension"}  # what the library takes
_AROUND = {"neighbours", "users of the consumer", "reads of the consumer"}
_READS = {"reads of the producer", "other operands"}
_TIME = {*_USERS, *_KINDS, *_AROUND, *_READS, "size", "element type"}
# By rule, from its page: the factors on which its condition depends. Rules that are not here: the
# operations of the pair.
CONDITIONS: dict[str, set[str]] = {
    # A producer of two large operands that some consumer cannot take.
    "base-globally-unfusible": _USERS | _COST | {"consumer's operation"},
    # The consumer may have been fused into several of its users before.
    "base-expensive-dup": _USERS | _COST | {"users of the consumer"},
    "lib-one-user": _USERS,
    "cpu-expensive-reuse": _COST | _AROUND | {"consumer's operation"},
    "cpu-code-dup": _AROUND | _USERS,
    "cpu-constant-into-op": {"consumer is a single operation", "producer's operation"},
    "cpu-nonscalar-constant": {"elements of a constant", "producer's operation"},
    "cpu-concat": {"number of operands", "dimension", "size"},
    "cpu-max-reductions": _AROUND,
    "cpu-softmax-coupling": _USERS | {"neighbours"},
    "lib-individual": _LIBRARY,
    "lib-grow": _LIBRARY,
    "ynn-preferred": {"size"},
    "ynn-layout": _LIBRARY,
    "ynn-elementwise": _LIBRARY,
    "inplace-ds-index": _USERS | _AROUND | {"other operands", "consumer's operation"},
    "pf-negative": _TIME,
    # The producer is, or has been fused with, a reduction of enough elements for many threads.
    "pf-reduce-to-loop": _KINDS | {"size", "other operands"},
    "pf-all-users": _USERS | _AROUND | {"producer's operation"},
    "pf-code-dup": _AROUND | _USERS,
    "pf-large-constant": {"elements of a constant", "producer's operation"},
    "pf-constants": {"consumer's operation", "producer's operation"},
    # The producer is a dot, or what it reads has been fused with one, and others read it.
    "gf-one-user": _USERS | _COST | {"other operands"},
    "gf-second-dot": _KINDS | {"other operands"},
    # Of a reshape that reads the consumer and is fused with the dot, most often.
    "gf-tiling": _KINDS | {"users of the consumer"},
    "gf-input-worth": _USERS
    | {"reads of the producer", "size", "element type", "producer's operation", "other operands"},
    # It would do if the consumer had no user to be fused into.
    "gf-output-worth": {
        "size",
        "element type",
        "consumer's operation",
        "other operands",
        "users of the consumer",
    },
    "gf-other-inputs": {"other operands", "consumer's operation"},
    "gf-split-k": {"size"},
    "gemm-size": {"size"},
    "gf-blocks": {"size"},
    "gf-parameters": {"other operands", "number of operands"},
    "gf-concatenate": {"size", "dimension", "number of operands"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    drawn = [each for dump in options.dumps for each in _refused(dump)]
    random.Random(options.seed).shuffle(drawn)
    begin, asked = time.process_time(), 0
    found: dict[str, Counter[str]] = {}
    compilers: dict[str, Compiler] = {}
    with ExitStack() as opened:
        for dump, producer, consumer, rule in sorted(drawn[: options.pairs]):
            module = _module(dump)
            key = f"{module.backend} {module.device}"
            if key not in compilers:
                compilers[key] = opened.enter_context(
                    Compiler(module, python=options.python, limit_s=60, kept=None)
                )
            made = experiment(*_ends(dump), producer, consumer, compilers[key])
            verdict, in_cut = judge(rule, made), ""
            if verdict == WRONG and (in_cut := _rule_in_cut(module, made, options.python)):
                verdict = "right in cut" if judge(in_cut, made) == "right" else WRONG
            asked += made.cuts + len(made.questions)
            found.setdefault(rule, Counter())[verdict] += 1
            flips = "; ".join(f"{e.factor} ({e.before} -> {e.after})" for e in made.flips)
            print(
                f"{verdict:<15} {rule:<24} {dump.name} {producer} -> {consumer} {in_cut}: {flips}",
                flush=True,
            )
    print(f"\n{asked} programs asked, {time.process_time() - begin:.0f} s of processor time here")
    _print_table(found)
    return 0


def judge(rule: str, made: Experiment) -> str:
    """Return whether the cause is what the rule depends on."""
    if not made.reproduced:
        return "not reproduced"
    if made.cause is None:
        return "no cause"
    wanted = CONDITIONS.get(rule, _KINDS)
    # Two at once where a second rule refuses the pair, too.
    return "right" if wanted.intersection(made.cause.split(" and ")) else WRONG


def _rule_in_cut(module: DumpedModule, made: Experiment, python: str) -> str:
    """Return the rule by which the compiler refuses the pair in the cut, by explaining its dump;
    empty if that does not show the pair.
    """
    with TemporaryDirectory() as scratch:
        file = Path(scratch, "cut.hlo")
        file.write_text(made.program)
        program = Program(kind=ProgramKind.HLO, file=file)
        captured = capture(
            program,
            find_target(module),
            Path(scratch, "dump"),
            flags=flags_for(module),
            python=python,
        )
        dumped = open_dump(captured.directory).modules[0]
        for pair in analyze(dumped).facts.pairs:
            names = pair.producer.op_name or "", pair.consumer.op_name or ""
            is_constant = pair.producer.opcode == "constant"
            if CONSUMER in names[1] and (PRODUCER in names[0] or is_constant):
                return pair.reason or ""
    return ""


def _print_table(found: dict[str, Counter[str]]) -> None:
    total: Counter[str] = Counter()
    print(f"{'rule':<26}{'pairs':>6}{'reproduced':>12}{'cause':>7}{'right':>7}{'in cut':>8}")
    for rule, verdicts in sorted(found.items(), key=lambda each: -each[1].total()):
        _print_row(rule, verdicts)
        total += verdicts
    _print_row(f"all {len(found)} rules", total)


def _print_row(name: str, verdicts: Counter[str]) -> None:
    reproduced = verdicts.total() - verdicts["not reproduced"]
    caused = reproduced - verdicts["no cause"]
    right = verdicts["right"]
    in_cut = right + verdicts["right in cut"]
    print(f"{name:<26}{verdicts.total():>6}{reproduced:>12}{caused:>7}{right:>7}{in_cut:>8}")


@lru_cache(maxsize=2)
def _module(dump: Path) -> DumpedModule:
    return max(open_dump(dump).modules, key=lambda each: len(each.stages))


@lru_cache(maxsize=2)
def _ends(dump: Path) -> tuple[Module, Module]:
    return ends_of(_module(dump))


def _refused(dump: Path) -> list[tuple[Path, str, str, str]]:
    return [
        (dump, pair.producer.name, pair.consumer.name, pair.reason)
        for pair in analyze(_module(dump)).facts.pairs
        if pair.outcome == Outcome.NOT_FUSED and pair.reason not in (None, "unknown")
    ]


if __name__ == "__main__":
    sys.exit(main())
