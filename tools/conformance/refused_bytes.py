"""Counts the bytes that refused pairs could have saved, by reason.

    python tools/conformance/refused_bytes.py [--each] DUMPS...

Each of DUMPS is a dump, or a directory with dumps in it. Prints a Markdown table for each backend:
the share of all refused bytes, the pairs, in how many dumps a reason is found, its median share of
these and its largest. ``--each`` adds the three costliest reasons of each dump. Exits with 1 where
a reason says only that one of the two can never be fused, without a cause.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from outcomes import dumps

from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import Selection, explain
from fusionscope.reasons.causes import CAUSELESS


@dataclass(slots=True)
class Refused:
    """What was refused for one backend; ``shares`` are those of each dump, from 0 to 1."""

    saved: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)
    shares: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, saved: Counter[str], pairs: Counter[str]) -> None:
        self.saved += saved
        self.pairs += pairs
        for reason in pairs:
            self.shares[reason].append(saved[reason] / (saved.total() or 1))

    def table(self) -> str:
        rows = ["| reason | share | pairs | dumps | median | most |", "|---|--:|--:|--:|--:|--:|"]
        total = self.saved.total() or 1
        for reason in sorted(self.pairs, key=lambda each: -self.saved[each]):
            own = self.shares[reason]
            rows.append(
                f"| {reason} | {self.saved[reason] / total:.2%} | {self.pairs[reason]:,} "
                f"| {len(own)} | {median(own):.0%} | {max(own):.0%} |"
            )
        return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dumps", type=Path, nargs="+", metavar="DUMPS")
    parser.add_argument("--each", action="store_true", help="list each dump, too")
    options = parser.parse_args()
    found: dict[str, Refused] = defaultdict(Refused)
    for path in (dump for root in options.dumps for dump in dumps(root)):
        try:
            modules = explain(open_dump(path), Selection(all_modules=True)).modules
        except UnusableInput as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        for backend in sorted({module.backend or "unknown" for module in modules}):
            saved: Counter[str] = Counter()
            pairs: Counter[str] = Counter()
            for module in modules:
                if (module.backend or "unknown") == backend:
                    for reason in module.reasons:
                        saved[reason.reason] += reason.bytes_saved
                        pairs[reason.reason] += reason.count
            found[backend].add(saved, pairs)
            if options.each:
                total = saved.total() or 1
                most = (f"{reason} {own / total:.0%}" for reason, own in saved.most_common(3))
                print(f"{'/'.join(path.parts[-2:])}: {total / 1e6:.2f} MB; {', '.join(most)}")
    for backend, refused in found.items():
        print(f"\n{backend}: {refused.saved.total() / 1e6:,.1f} MB refused\n\n{refused.table()}")
    without_cause = {reason for refused in found.values() for reason in refused.pairs} & {
        *CAUSELESS
    }
    sys.exit(bool(without_cause))


if __name__ == "__main__":
    main()
