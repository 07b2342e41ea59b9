"""Compares the memory that `explain` shows with the compiler's own reports.

Each of DUMPS is a dump, or a directory with dumps in it. Two checks for each module:

- The total is that of the file `*-memory-usage-report.txt`, read here by a search of its own.
- The values alive at the place that the compiler names as the peak are those that it lists in
  `*-live-range.txt`. (The peak of `explain` may lie elsewhere: docs/memory.md.)

Prints each difference, then counts. Exit code 1 if anything differs or nothing was compared.
"""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from conformance.findings import Finding, add_dumps, counted, problem
from conformance.outcomes import dumps
from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import Selection, explain
from fusionscope.findings.memory.facts import MemoryFacts

TOTAL = re.compile(r"^Total bytes: (\d+)", re.MULTILINE)
PEAK = re.compile(r"^  Live ranges at (\d+) \(peak\):\n((?:    .*\n)*)", re.MULTILINE)
LISTED = re.compile(r"^    (\S+?)(?:\{\})?: \d+ bytes", re.MULTILINE)


def report(directory: Path, number: int, kind: str) -> str:
    """Return the text of a report on the memory of a module, empty if the dump has none."""
    files = [*directory.glob(f"module_{number:04}.*after_optimizations-{kind}.txt")]
    return files[0].read_text(encoding="utf-8") if files else ""


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)


def findings(options: Namespace) -> Iterator[Finding]:
    is_compared = False
    for directory in (dump for root in options.dumps for dump in dumps(root)):
        try:
            modules = explain(open_dump(directory), Selection()).modules
        except UnusableInput as error:
            yield counted("unreadable dumps", f"{directory}: {error}")
            continue
        for module in modules:
            totals = TOTAL.findall(report(directory, module.number, "memory-usage-report"))
            memory = module.find(MemoryFacts)
            if memory is None or not totals:
                yield counted("modules without the files")
                continue
            is_compared = True
            where = f"{directory}: {module.name}"
            if memory.total_bytes == sum(map(int, totals)):
                yield counted("totals equal")
            else:
                line = f"{where}: {memory.total_bytes}, not {totals}"
                yield problem("totals different", line)
            yield _peak(memory, report(directory, module.number, "live-range"), where)
    if not is_compared:
        yield problem("nothing compared", "nothing was compared")


def _peak(memory: MemoryFacts, live_ranges: str, where: str) -> Finding:
    peak = PEAK.search(live_ranges)
    if peak is None:
        return counted("modules without live ranges")
    place, listed = int(peak[1]), set(LISTED.findall(peak[2]))
    alive = {value.name for value in memory.values if value.first <= place <= value.last}
    if alive == listed:
        return counted("peak sets equal")
    return problem("peak sets different", f"{where}: at {place} also {sorted(alive ^ listed)[:4]}")
