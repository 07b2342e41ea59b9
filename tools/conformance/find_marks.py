"""Finds which pass follows which in the dumps of some versions only.

Prints a line for each place: under each version `A` where all programs show it, `s` where some do.
"""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from conformance.findings import Finding, note
from fusionscope.dump import open_dump

FEWEST = 10  # stages; JAX compiles small modules of its own too


def version_of(folder: Path) -> tuple[int, ...]:
    return tuple(map(int, folder.name.split(".")))


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("dumps", type=Path, help="DIR/VERSION/TARGET/PROGRAM is a dump")
    parser.add_argument("target")


def findings(options: Namespace) -> Iterator[Finding]:
    dumps, target = options.dumps, options.target
    versions = sorted((path for path in dumps.iterdir() if path.is_dir()), key=version_of)
    visited: list[Counter[tuple[str, str, str]]] = []
    counts: list[int] = []
    for version in versions:
        modules = [
            module
            for program in sorted((version / target).iterdir())
            for module in open_dump(program).modules
            if len(module.stages) >= FEWEST
        ]
        places = [
            {(stage.name.pipeline, stage.name.after, stage.name.before) for stage in module.stages}
            for module in modules
        ]
        visited.append(Counter(place for pass_place in places for place in pass_place))
        counts.append(len(modules))
    yield note(" ".join(version.name for version in versions))
    lines = []
    for place in set().union(*visited):
        signs = [
            "A" if counter[place] == count else "s" if counter[place] else "."
            for counter, count in zip(visited, counts, strict=True)
        ]
        if len(set(signs)) > 1:
            lines.append(f"{''.join(signs)} {' | '.join(place)}")
    yield from map(note, sorted(lines))
