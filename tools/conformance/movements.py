"""Holds the ledger of copies against the names in the stages.

    python tools/conformance/movements.py DUMPS...

Each of DUMPS is a dump, or a directory with dumps in it. Every copy, transpose, convert and reshape
of the final modules has to have a cause, and the pass that inserted it unless the program has it.
The pass is checked by names, which the search for it does not use: the stage before the pass has no
instruction of the same name, opcode and shape.

Prints how many there are of each cause, those whose cause is only that a pass inserted them, and
each contradiction. Exits with 1 if there is one.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from outcomes import dumps

from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import Selection, explain
from fusionscope.facts.result import Movement, MovementCause


def contradictions(module: DumpedModule, movements: tuple[Movement, ...]) -> Iterator[str]:
    """Yield each movement that the stage before its pass has by name."""
    labels = [stage.label for stage in module.stages]
    for movement in movements:
        if movement.made_by is None:
            continue
        before = module.read(module.stages[labels.index(movement.stage) - 1])
        for each in before.walk():
            operation = movement.operation
            if (each.name, each.opcode) == (operation.name, operation.opcode):
                same = each.shape.dimensions == _dimensions(operation.shape)
                if same and each.computation.module.outermost_fusions.get(each.computation) is None:
                    yield f"{operation.name} {operation.shape} in {movement.stage}: {movement.text}"


def _dimensions(shape: str) -> tuple[int, ...]:
    inside = shape.partition("[")[2].partition("]")[0]
    return tuple(int(size.lstrip("<=")) for size in inside.split(",") if size)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    causes: Counter[tuple[str, bool]] = Counter()
    vague: Counter[str] = Counter()
    count = wrong = 0
    for path in (dump for root in parser.parse_args().dumps for dump in dumps(root)):
        try:
            dump = open_dump(path)
            explanation = explain(dump, Selection(all_modules=True, movements=True))
        except UnusableInput as problem:
            print(f"{path}: {problem}")
            continue
        count += 1
        modules = {module.number: module for module in dump.modules}
        for facts in explanation.modules:
            movements = facts.movements or ()
            causes.update((each.cause, each.is_alone) for each in movements)
            vague.update(
                each.made_by or ""
                for each in movements
                if each.cause is MovementCause.REWRITE and each.text.endswith("inserted it")
            )
            for text in contradictions(modules[facts.number], movements):
                wrong += 1
                print(f"{path}: {text}")
    print(f"{count:,} dumps, {sum(causes.values()):,} movements, {wrong:,} contradictions")
    for (cause, is_alone), number in causes.most_common():
        print(f"  {number:6,}  {cause}{' in a kernel that only moves data' if is_alone else ''}")
    for name, number in vague.most_common():
        print(f"  {number:6,}  inserted by {name}, nothing more known")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
