"""Counts the costliest refusals for which something was found that helps.

    python tools/conformance/top_refusals.py DUMPS... [--compile] [--python PATH] [--flag FLAG]...
        [--markdown FILE]

Each of DUMPS is a dump of a program, or a directory with dumps in it. Of the costliest module of
each, the ten costliest kinds of refusals are looked up in what `explain` tried: as much as a user
sees without options, with `--unlimited` everything that a replay can try, with `--compile` also
what the compiler makes of it. ``--flag`` (as in XLA_FLAGS) compiles with these flags only, instead
of every one, which may miss what helps.

A refusal counts as helped if a suggestion fuses its costliest pair, or no longer writes its value.
A recipe that was tried only on its own example does not count, and is listed apart. The table has
the figures of the change that comes closest for all others, or the reason for which there is none.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from outcomes import dumps

from fusionscope.advise import suggest as advise
from fusionscope.advise.candidates import Candidate, flag_candidates
from fusionscope.advise.recipes.trying import Compilation
from fusionscope.advise.suggest import suggester
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import ModuleFacts, Selection, explain
from fusionscope.facts.result import PairFacts
from fusionscope.facts.suggestions import Answer, HowTried, Suggestions
from fusionscope.findings.suggestions.sheet import for_pair
from fusionscope.words.text import cell, code, size

HELPED, EXAMPLE, NOT_TIMED, NOT_WORTH_IT, IN_VAIN, UNTRIED, NOTHING = (
    "helped",
    "by the example of a recipe",
    "fused, not timed",
    "fused, not worth it",
    "tried, not fused",
    "not tried yet",
    "nothing to try",
)
ALL = (HELPED, EXAMPLE, NOT_TIMED, NOT_WORTH_IT, IN_VAIN, UNTRIED, NOTHING)


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of refusals: its costliest pair, how many are alike, all their bytes, and what is
    known to help.
    """

    example: PairFacts
    count: int
    bytes_saved: int
    status: str
    text: str


def status_of(found: Suggestions, answer: Answer) -> str:
    pair = answer.pairs[0]
    helping = [each for each in found.helpful if pair in each.pairs]
    if any(each.evidence is not HowTried.EXAMPLE for each in helping):
        return HELPED
    if helping:
        return EXAMPLE
    if found.not_timed(*pair):
        return NOT_TIMED
    if found.not_worth_it(*pair):
        return NOT_WORTH_IT
    if answer.untried and not answer.why:
        return UNTRIED
    return NOTHING if answer.why or not answer.in_vain else IN_VAIN


def rows_of(module: ModuleFacts) -> Iterator[Row]:
    found = module.suggestions
    assert found is not None
    facts = {(each.producer.name, each.consumer.name): each for each in module.pairs}
    for answer in found.answers:
        alike = [facts[pair] for pair in answer.pairs]
        yield Row(
            alike[0],
            len(alike),
            sum(each.bytes_saved for each in alike),
            status_of(found, answer),
            for_pair(found, *answer.pairs[0]),
        )


def only(flags: Sequence[str]) -> Callable[[DumpedModule], Iterator[Candidate]]:
    """Return what yields the candidates among ``flags``."""

    def candidates(module: DumpedModule) -> Iterator[Candidate]:
        return (each for each in flag_candidates(module) if each.change in flags)

    return candidates


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--unlimited", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--flag", action="append", metavar="FLAG")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    compilation = Compilation(options.python) if options.compile else None
    suggest = suggester(Selection(), is_limited=not options.unlimited, compilation=compilation)
    if options.flag is not None:
        advise.flag_candidates = only(options.flag)
    totals: Counter[str] = Counter()
    by_reason: Counter[tuple[str, str]] = Counter()
    lines = ["| program | for | " + " | ".join(ALL) + " |", "|---|---|" + "--:|" * len(ALL)]
    details: list[str] = []
    for path in (dump for root in options.dumps for dump in dumps(root)):
        try:
            module = explain(open_dump(path), Selection(), suggest=suggest).modules[0]
        except UnusableInput as problem:
            print(f"{path}: {problem}", flush=True)
            continue
        rows = list(rows_of(module))
        counts = Counter(row.status for row in rows)
        totals += counts
        by_reason.update((row.example.reason or "", row.status) for row in rows)
        figures = " | ".join(str(counts[each] or "") for each in ALL)
        lines.append(f"| {path.name} | {module.backend} | {figures} |")
        print(f"{path}: {', '.join(f'{counts[each]} {each}' for each in ALL if counts[each])}")
        assert module.suggestions is not None
        for each in module.suggestions.helpful:
            was, now = each.before, each.after
            print(
                f"    try {each.number}: {each.change}: launches {was.launches} -> {now.launches}, "
                f"bytes {was.bytes_moved} -> {now.bytes_moved}, us {was.time_us} -> {now.time_us} "
                f"({each.evidence})"
            )
        for row in rows:
            one, other = row.example.producer, row.example.consumer
            told = f"{one.opcode} -> {other.opcode} x{row.count}, {size(row.bytes_saved)}"
            print(f"    {told}, {row.example.reason}: {row.status}: {row.text}", flush=True)
            details.append(
                f"| {path.name} | {module.backend} | {code(f'{one.opcode} -> {other.opcode}')} "
                f"| {row.count} | {size(row.bytes_saved)} | {row.example.reason} "
                f"| {cell(row.text)} |"
            )
    count = sum(totals.values())
    print(f"{count} kinds of refusals: " + ", ".join(f"{totals[each]} {each}" for each in ALL))
    for (reason, status), number in by_reason.most_common():
        print(f"  {number:4}  {reason}: {status}")
    if options.markdown is not None:
        head = "| program | for | refusal | pairs | bytes | reason | what is known |"
        details[:0] = [head, "|---|---|---|--:|--:|---|---|"]
        options.markdown.write_text("\n".join((*lines, "", *details, "")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
