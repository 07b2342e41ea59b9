"""Holds the explanations of dumps against what must be true of any explanation.

    python tools/conformance/explained.py DUMPS...

Each of DUMPS is a dump, or a directory with dumps in it, made by a compiler whose rules are known.
All of it can be read and nothing is missing, so there is no problem and no note. Only a pair that
is not fused has a reason. Prints the outcomes and reasons of each dump. Exits with 1 where
something is not so, and where no pair of any dump is fused.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from outcomes import dumps

from fusionscope.dump import open_dump
from fusionscope.explain import Explanation, Selection, explain
from fusionscope.history import Outcome


def faults(explanation: Explanation) -> Iterator[str]:
    yield from explanation.problems
    for module in explanation.modules:
        yield from module.notes
        for pair in module.pairs:
            if pair.reason and pair.outcome is not Outcome.NOT_FUSED:
                yield f"{pair.producer.name} -> {pair.consumer.name}: {pair.outcome}, {pair.reason}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dumps", type=Path, nargs="+", metavar="DUMPS")
    count = 0
    total: Counter[str] = Counter()
    roots: list[Path] = parser.parse_args().dumps
    for path in (dump for root in roots for dump in dumps(root)):
        explanation = explain(open_dump(path), Selection(all_modules=True))
        pairs = [pair for module in explanation.modules for pair in module.pairs]
        outcomes = Counter(str(pair.outcome) for pair in pairs)
        total += outcomes
        reasons = Counter(pair.reason for pair in pairs if pair.reason)
        print(f"{'/'.join(path.parts[-2:])}: {dict(outcomes)} {dict(reasons)}")
        for fault in faults(explanation):
            count += 1
            print(f"  {fault}")
    sys.exit(count > 0 or not total[Outcome.FUSED])


if __name__ == "__main__":
    main()
