"""Compares the copies that are predicted after fusion with those that the compiler inserted.

    python tools/conformance/final_copies.py DUMPS...

Each of DUMPS is a dump, or a directory with dumps in it. The module after the last fusion pass,
with the predicted copies, should have as many launches and bytes as the final module. Prints each
module for which it has not, then the counts for each backend. Later passes that simplify, or merge
equal kernels, make differences, too.
"""

import argparse
from collections import Counter
from pathlib import Path

from outcomes import dumps

from fusionscope.advise.replays import chained_runs
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.graph.mutable import MutableModule, to_module
from fusionscope.history.kernels import total_kernels
from fusionscope.history.loops import read_loop_facts
from fusionscope.what_if.copies import insert_copies


def compare(path: Path, module: DumpedModule) -> str:
    runs = chained_runs(module)
    if not runs or module.final is None:
        return "without fusion"
    after = module.read(runs[-1].after or runs[-1].before)
    graph = MutableModule(after)
    copies = insert_copies(graph, module.backend)
    predicted = total_kernels(to_module(graph), module.backend, read_loop_facts(module))
    final = total_kernels(module.read(module.final), module.backend)
    if predicted == final:
        return "equal, with copies" if copies else "equal, without copies"
    print(
        f"{path} {module.name}: predicted {predicted.launches:,} launches and "
        f"{predicted.bytes_moved:,} bytes, final {final.launches:,} and {final.bytes_moved:,}"
    )
    return "different"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dumps", type=Path, nargs="+", metavar="DUMPS")
    counts: Counter[tuple[str, str]] = Counter()
    for path in (dump for root in parser.parse_args().dumps for dump in dumps(root)):
        try:
            for module in open_dump(path).modules:
                counts[module.backend or "unknown", compare(path, module)] += 1
        except UnusableInput as error:
            print(f"{path}: {error}")
    for (backend, result), count in sorted(counts.items()):
        print(f"{backend}: {count} {result}")


if __name__ == "__main__":
    main()
