"""Judges how moved thresholds are found: plants wrong ones in rules that are right.

    python tools/conformance/drift.py DUMP... --python PYTHON [--pairs 1]
    python tools/conformance/drift.py --examples cpu --python PYTHON

Dumps may be made of the examples on the pages of rules with thresholds, as far as the compiler for
that device accepts them. Each threshold of the rules is made half and twice as large. Where the
replay of a dump then differs from the compiler, the compiler is asked what has moved. Right is an
answer that names the threshold and an interval that contains the true value but not the planted
one. Other thresholds may fit as well; they are counted. Prints a line for each planted threshold
and dump.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.capture.compiler import CompilerProcess
from fusionscope.capture.targets import Target, read_target
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.experiments.asking import DISABLED, DUMPING
from fusionscope.experiments.drift import Moved, find_drift
from fusionscope.rules.changes import Changes
from fusionscope.rules.pages import read_examples
from fusionscope.verify.rules_used import replay_one
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.known import all_compilers
from fusionscope.versions.runs import find_runs

Planted = tuple[str, str, int, int]  # rule, threshold, the true value and the planted one


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dumps", nargs="*", type=Path)
    parser.add_argument("--examples", metavar="DEVICE")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=1)
    options = parser.parse_args()
    with TemporaryDirectory() as scratch:
        dumps = list(options.dumps)
        if options.examples:
            dumps += _examples(read_target(options.examples), options.python, Path(scratch))
        _judge_all(dumps, options.python, options.pairs)
    return 0


def _examples(target: Target, python: str, scratch: Path) -> list[Path]:
    """Dump the examples of all rules with thresholds."""
    backend = "cpu" if target.platform == "cpu" else "gpu"
    rules = [
        rule.id
        for compiler in all_compilers()
        if compiler.backend == backend
        for book in compiler.books
        for rule in book
        if rule.thresholds
    ]
    disabled = ",".join(DISABLED.get(backend, ()))
    flags = (f"--xla_disable_hlo_passes={disabled}",) if disabled else ()
    dumps = []
    with CompilerProcess(target, flags=flags, python=python) as compiler:
        for id in dict.fromkeys(rules):
            for number, example in enumerate(read_examples(id)):
                directory = scratch / f"{id}-{number}"
                directory.mkdir()
                options = {**DUMPING, "xla_dump_to": str(directory)}
                if not compiler.compile(example.text, options).problem:
                    dumps.append(directory)
    return dumps


def _judge_all(dumps: Iterable[Path], python: str, pairs: int) -> None:
    counted: Counter[str] = Counter()
    for path in dumps:
        module = max(open_dump(path).modules, key=lambda each: len(each.stages))
        rules = choose_compiler(module).compiler
        for planted in _planted(rules):
            rule, name, _, value = planted
            changed = Changes(thresholds=((rule, name, value),)).apply(rules)
            if not _differs(module, changed):
                continue
            found = find_drift(module, changed, top=pairs, python=python)
            for moved in found.pairs:
                verdict = _judge(planted, moved)
                counted[verdict] += 1
                counted["programs"] += moved.programs
                fits = "; ".join(
                    f"{each.rule}.{each.name} {each.known}: {each.least} to {each.most}"
                    for each in moved.thresholds
                )
                print(
                    f"{verdict:<16} {path.name} {rule}.{name} {planted[2]} planted {value}: "
                    f"{moved.producer} -> {moved.consumer} [{moved.around}] {moved.differing} of "
                    f"{moved.programs}: {fits}",
                    flush=True,
                )
    print(", ".join(f"{count} {verdict}" for verdict, count in counted.most_common()))


def _planted(rules: Compiler) -> Iterator[Planted]:
    for book in rules.books:
        for rule in book:
            for name, value in rule.thresholds.items():
                for wrong in {value // 2, 2 * value} - {value}:
                    yield rule.id, name, value, wrong


def _differs(module: DumpedModule, rules: Compiler) -> bool:
    context = read_context(module)
    return any(not replay_one(module, run, context, rules)[1] for run in find_runs(module))


def _judge(planted: Planted, moved: Moved) -> str:
    if not moved.around:
        return "not reproduced"
    rule, name, value, wrong = planted
    for each in moved.thresholds:
        if (each.rule, each.name) == (rule, name):
            fits = [
                (each.least is None or each.least <= number)
                and (each.most is None or number <= each.most)
                for number in (value, wrong)
            ]
            if fits != [True, False]:
                return "WRONG"
            return "right" if len(moved.thresholds) == 1 else "right, not alone"
    return "WRONG" if moved.thresholds else "no answer"


if __name__ == "__main__":
    sys.exit(main())
