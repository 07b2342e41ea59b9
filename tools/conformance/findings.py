"""What checks yield, and how it is printed, counted and made an exit code."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check came to. ``kind`` is what is counted, empty for a mere line."""

    kind: str
    line: str = ""
    is_problem: bool = False
    count: int = 1


def counted(kind: str, line: str = "", count: int = 1) -> Finding:
    """What is as it should be; its line is for ``--verbose``."""
    return Finding(kind, line, count=count)


def problem(kind: str, line: str) -> Finding:
    return Finding(kind, line, is_problem=True)


def note(line: str) -> Finding:
    return Finding("", line)


def tally(counts: Mapping[str, int]) -> Iterator[Finding]:
    """The counts that a check kept itself."""
    return (counted(kind, count=count) for kind, count in counts.items())


def report(findings: Iterable[Finding], *, is_verbose: bool) -> int:
    """The exit code: 1 where there is a problem, or nothing at all. Prints problems, notes, and
    how many there are of each kind."""
    counts: Counter[str] = Counter()
    problems = lines = 0
    for finding in findings:
        lines += 1
        problems += finding.is_problem
        if finding.kind:
            counts[finding.kind] += finding.count
        if finding.line and (is_verbose or finding.is_problem or not finding.kind):
            print(finding.line, flush=True)
    for kind, count in sorted(counts.items()):
        print(f"{count:11,}  {kind}")
    if not lines:
        print("nothing was checked")
    elif counts:
        print(f"{problems:,} problems")
    return 1 if problems or not lines else 0


def add_dumps(parser: ArgumentParser) -> None:
    parser.add_argument(
        "dumps", nargs="+", type=Path, metavar="DUMPS", help="a dump, or a folder with dumps in it"
    )
