"""Compares the memory that `explain` shows with the compiler's own reports.

    python tools/conformance/memory.py DUMPS...

Each of DUMPS is a dump, or a directory with dumps in it. Two checks for each module:

- The total is that of the file `*-memory-usage-report.txt`, read here by a search of its own.
- The values alive at the place that the compiler names as the peak are those that it lists in
  `*-live-range.txt`. (The peak of `explain` may lie elsewhere: docs/memory.md.)

Prints each difference, then counts. Exit code 1 if anything differs or nothing was compared.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

from outcomes import dumps

from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import Selection, explain

TOTAL = re.compile(r"^Total bytes: (\d+)", re.MULTILINE)
PEAK = re.compile(r"^  Live ranges at (\d+) \(peak\):\n((?:    .*\n)*)", re.MULTILINE)
LISTED = re.compile(r"^    (\S+?)(?:\{\})?: \d+ bytes", re.MULTILINE)


def report(directory: Path, number: int, kind: str) -> str:
    """Return the text of a report on the memory of a module, empty if the dump has none."""
    files = [*directory.glob(f"module_{number:04}.*after_optimizations-{kind}.txt")]
    return files[0].read_text(encoding="utf-8") if files else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    counts: Counter[str] = Counter()
    for directory in (each for root in parser.parse_args().dumps for each in dumps(root)):
        try:
            modules = explain(open_dump(directory), Selection()).modules
        except UnusableInput as error:
            counts["unreadable dumps"] += 1
            print(f"{directory}: {error}")
            continue
        checked = False
        for module in modules:
            totals = TOTAL.findall(report(directory, module.number, "memory-usage-report"))
            if module.memory is None or not totals:
                counts["modules without the files"] += 1
                continue
            checked = True
            is_equal = module.memory.total_bytes == sum(map(int, totals))
            counts["totals " + ("equal" if is_equal else "different")] += 1
            if not is_equal:
                print(f"{directory}: {module.name}: {module.memory.total_bytes}, not {totals}")
            peak = PEAK.search(report(directory, module.number, "live-range"))
            if peak is None:
                counts["modules without live ranges"] += 1
                continue
            place, listed = int(peak[1]), set(LISTED.findall(peak[2]))
            alive = {v.name for v in module.memory.values if v.first <= place <= v.last}
            counts["peak sets " + ("equal" if alive == listed else "different")] += 1
            if alive != listed:
                print(f"{directory}: {module.name}: at {place} also {sorted(alive ^ listed)[:4]}")
        counts["dumps"] += checked
    for what, count in sorted(counts.items()):
        print(f"{count:6,} {what}")
    is_different = any(what.endswith("different") for what in counts)
    sys.exit(is_different or not counts["dumps"])


if __name__ == "__main__":
    main()
