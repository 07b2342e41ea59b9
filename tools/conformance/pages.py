"""Compares the pages of `report` with what `explain --format json` says.

    python tools/conformance/pages.py DUMPS... [--keep DIRECTORY]

Each of DUMPS is a dump, or a directory with dumps in it. Everything that a page says of a module
has to equal the JSON of `explain` (without suggestions, which `explain` is not asked for here). In
the last stage of the picture, the operations of each pair share a kernel, in which one reads the
other, or they do not, as its outcome says, and some stage has an edge between them. Prints each
difference, then counts. Exit code 1 if anything differs or nothing was compared.
"""

import argparse
import base64
import gzip
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from outcomes import dumps

from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import Selection, explain
from fusionscope.page.report_facts import report_facts
from fusionscope.report.documents import to_json
from fusionscope.report.html.page import report_page

_TRIED = {"suggestions", "unmeasured", "rejected", "untried", "answers"}
_TOGETHER = {"fused", "duplicated"}


def data_of(page: str) -> dict[str, Any]:
    (packed,) = re.findall(r'<script type="text/plain" id="data">([^<]*)</script>', page)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def final_kernels(picture: dict[str, Any]) -> dict[int, set[int]]:
    kernels: dict[int, set[int]] = defaultdict(set)
    for stage in picture["stages"]:
        for node, kernel in zip(stage["removed"][::3], stage["removed"][1::3], strict=True):
            kernels[node].discard(kernel)
        for node, kernel in zip(stage["added"][::3], stage["added"][1::3], strict=True):
            kernels[node].add(kernel)
    return kernels


def compare(path: Path, keep: Path | None, counted: Counter[str]) -> list[str]:
    page = report_page(report_facts(open_dump(path), Selection(), Path("/nonexistent")))
    if keep is not None:
        (keep / f"{path.parent.name}-{path.name}.html").write_text(page)
    told = json.loads(json.dumps(to_json("explain", explain(open_dump(path), Selection()))))
    side = data_of(page)["now"]
    problems = []
    for ours, theirs, picture in zip(
        side["explanation"]["modules"], told["modules"], side["pictures"], strict=True
    ):
        for field in theirs.keys() - _TRIED:
            counted["fields"] += 1
            if ours[field] != theirs[field]:
                problems.append(f"{path} {theirs['name']}: {field} differs")
        if picture is None:
            continue
        kernels = final_kernels(picture)
        apart = set(zip(*(picture["apart"][start::3] for start in range(3)), strict=True))
        edges = {
            ends
            for stage in picture["stages"]
            for ends in zip(stage["edges_added"][::2], stage["edges_added"][1::2], strict=True)
        }
        for place, pair in enumerate(theirs["pairs"]):
            read, reader = picture["pairs"][2 * place : 2 * place + 2]
            if read < 0 or read == reader or pair["outcome"] not in {*_TOGETHER, "not-fused"}:
                counted["pairs that are gone, not drawn, or one value"] += 1
                continue
            counted["pairs"] += 1
            names = f"{pair['producer']['name']} -> {pair['consumer']['name']}"
            shared = {
                kernel
                for kernel in kernels[read] & kernels[reader]
                if (read, reader, kernel) not in apart
            }
            if bool(shared) != (pair["outcome"] in _TOGETHER):
                problems.append(f"{path} {names}: {pair['outcome']}, drawn otherwise")
            if (read, reader) not in edges:
                problems.append(f"{path} {names}: no edge is drawn")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--keep", type=Path, help="where to write the pages")
    asked = parser.parse_args()
    if asked.keep is not None:
        asked.keep.mkdir(parents=True, exist_ok=True)
    counted: Counter[str] = Counter()
    problems = []
    for path in [each for given in asked.dumps for each in dumps(given)]:
        try:
            problems += compare(path, asked.keep, counted)
            counted["pages"] += 1
        except UnusableInput as error:
            print(f"{path}: {error}", file=sys.stderr)
    for problem in problems:
        print(problem)
    for name, count in counted.items():
        print(f"{count:6} {name}")
    print(f"{len(problems):6} differences")
    return int(bool(problems) or not counted["pages"])


if __name__ == "__main__":
    sys.exit(main())
