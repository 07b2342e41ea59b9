"""Counts how often the rules for TPUs are right.

For each rule and device: of the pairs that the rule says the compiler refuses, how many it refused.
Pairs that look alike in one program (same rule, operations and shapes) count once. Then, for each
device, how many of the refused pairs have a rule that is right often enough there to give a reason,
and how many of their bytes. ``--wrong`` lists
the pairs that were fused against a rule. ``--write`` writes fusionscope/passes/tpu/accuracy.json:
only with programs that were compiled after the rules had been written. With ``--new``, which names
the rules that are new or have changed, the counts of all others are added to those in the file.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.findings import Finding, add_dumps, note
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.names import tpu_build
from fusionscope.errors import UnusableInput
from fusionscope.explain.analyze_module import outcomes_of
from fusionscope.history.outcomes import Outcome
from fusionscope.passes.tpu import accuracy
from fusionscope.passes.tpu.pair import TpuPairs
from fusionscope.passes.tpu.rules import refusing

OUTPUT = Path(accuracy.__file__).with_name("accuracy.json")
COMPARED = (Outcome.FUSED, Outcome.DUPLICATED, Outcome.NOT_FUSED)


@dataclass(frozen=True, slots=True)
class Seen:
    """A pair, and what looks like it. ``rule`` refuses it, if there is one."""

    device: str
    program: str
    words: str
    rule: str | None
    outcome: Outcome
    bytes_saved: int

    @property
    def look(self) -> tuple[str, str, str, str | None, bool]:
        is_refused = self.outcome is Outcome.NOT_FUSED
        return self.device, self.program, self.words, self.rule, is_refused


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--new", nargs="*")


def findings(options: Namespace) -> Iterator[Finding]:
    visited: list[Seen] = []
    builds: set[str] = set()
    for dump in options.dumps:
        try:
            for module in open_dump(dump).modules:
                visited += pairs_of(module, str(dump))
                builds |= {found} if (found := tpu_build(module.name)) else set()
        except UnusableInput as error:
            yield note(f"left out: {error}")
    alike = list({visited_pair.look: visited_pair for visited_pair in visited}.values())
    devices = sorted({visited_pair.device for visited_pair in visited})
    rules = count(alike)
    if options.new is not None:
        add_known(rules, options.new)
    yield from map(note, table_of_rules(rules, devices))
    yield from map(note, table_of_shares(visited, devices, rules))
    if options.wrong:
        for visited_pair in alike:
            if visited_pair.rule and visited_pair.outcome is not Outcome.NOT_FUSED:
                where = f"{visited_pair.rule:<22} {visited_pair.device} {visited_pair.program}"
                yield note(f"{where} {visited_pair.words}: {visited_pair.outcome}")
    if options.write:
        (build,) = builds
        head = {"libtpu": accuracy.libtpu(), "build": build, "devices": devices}
        fields = [f' "{name}": {json.dumps(value)},' for name, value in head.items()]
        counts = [
            f'  "{rule}": {json.dumps(counts_of_rule)}'
            for rule, counts_of_rule in sorted(rules.items())
        ]
        text = "\n".join(["{", *fields, ' "rules": {', ",\n".join(counts), " }", "}"])
        OUTPUT.write_text(text + "\n", encoding="utf-8")


def pairs_of(module: DumpedModule, program: str) -> Iterator[Seen]:
    """Yield the pairs of a module, if it is whole."""
    if module.tpu is None or module.pre_fusion is None or module.final is None:
        return
    pairs = TpuPairs()
    for pair in outcomes_of(module):
        if pair.outcome in COMPARED:
            rule = refusing(pairs.of(pair))
            ends = [f"{end.opcode} {end.shape}" for end in (pair.producer, pair.consumer)]
            yield Seen(
                module.tpu.name,
                program,
                " -> ".join(ends),
                rule.id if rule is not None else None,
                pair.outcome,
                pair.bytes_between,
            )


def count(alike: list[Seen]) -> dict[str, dict[str, list[int]]]:
    """Return [refused, pairs] by rule and device."""
    counts_by_rule: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for pair_alike in sorted(
        alike, key=lambda pair_alike: (pair_alike.rule or "", pair_alike.device)
    ):
        if pair_alike.rule:
            counts = counts_by_rule[pair_alike.rule].setdefault(pair_alike.device, [0, 0])
            counts[0] += pair_alike.outcome is Outcome.NOT_FUSED
            counts[1] += 1
    return dict(counts_by_rule)


def add_known(rules: dict[str, dict[str, list[int]]], new: list[str]) -> None:
    """Add what the file has about all rules but ``new``."""
    for rule, known_counts in json.loads(OUTPUT.read_text(encoding="utf-8"))["rules"].items():
        for device, counts in known_counts.items() if rule not in new else ():
            counts_of_device = rules.setdefault(rule, {}).setdefault(device, [0, 0])
            counts_of_device[:] = map(sum, zip(counts_of_device, counts, strict=True))


def table_of_rules(rules: dict[str, dict[str, list[int]]], devices: list[str]) -> Iterator[str]:
    yield "| rule | " + " | ".join(devices) + " | all | |\n|---|" + "--:|" * (len(devices) + 2)
    for rule, counts_of_rule in sorted(rules.items()):
        cells = [
            "{} of {}".format(*counts_of_rule[device]) if device in counts_of_rule else ""
            for device in devices
        ]
        refused, pairs = (
            sum(device_counts[place] for device_counts in counts_of_rule.values())
            for place in (0, 1)
        )
        cells += [f"{refused} of {pairs}", f"{100 * refused / pairs:.1f} %"]
        yield f"| `{rule}` | {' | '.join(cells)} |"


def table_of_shares(
    visited: list[Seen], devices: list[str], rules: dict[str, dict[str, list[int]]]
) -> Iterator[str]:
    yield "\n| device | programs | pairs | refused | with a rule | bytes with a rule |"
    yield "|---|--:|--:|--:|--:|--:|"
    for device in devices:
        pairs_of_device = [pair for pair in visited if pair.device == device]
        refused = [pair for pair in pairs_of_device if pair.outcome is Outcome.NOT_FUSED]
        told_by = {
            rule
            for rule, counts_of_rule in rules.items()
            if device in counts_of_rule and accuracy.Accuracy(*counts_of_rule[device]).is_enough
        }
        pairs_told = [pair for pair in refused if pair.rule in told_by]
        size = Counter[bool]()
        for pair in refused:
            size[pair.rule in told_by] += pair.bytes_saved
        programs = len({pair.program for pair in pairs_of_device})
        yield (
            f"| {device} | {programs} | {len(pairs_of_device):,} | {len(refused):,} "
            f"| {100 * len(pairs_told) / len(refused):.0f} % "
            f"| {100 * size[True] / max(1, size.total()):.0f} % |"
        )
