"""Follows what `explain` suggests, and compares what the compiler does with what was predicted.

    python tools/conformance/follow_advice.py DUMPS... [--seconds 2] [--rejected] [--markdown FILE]

Each of DUMPS is a dump of a program, or a directory with dumps in it. Every flag and every change
of rules that `explain` suggests is compiled, for the device of the dump, by the jaxlib of this
Python. A prediction is right if launches and bytes are exactly those of the compiled module. A
change of rules for a CPU is compared with a plan without changes, around which the compiler may
copy more than in the dump: there the difference between the two counts. If the
device is present, the program is timed with and without the change.

Prints a line for each and the number of right predictions. What `explain` shows for a CPU without
calling it helpful, as it was not timed, is followed too, and counted by itself. Exits with 1 if
something is worse that `explain` calls helpful.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from outcomes import dumps

from fusionscope.advise.candidates import read_candidate
from fusionscope.advise.compilations import Compiled, compile_each, compile_unchanged
from fusionscope.advise.recipes.trying import Compilation
from fusionscope.advise.suggest import suggester
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import Selection, explain
from fusionscope.explain.result import ModuleFacts
from fusionscope.explain.suggestion import Figures, Suggestion, SuggestionKind
from fusionscope.report.text import size

HEAD = """| program | for | change | launches | compiled | bytes | compiled | time |
|---|---|---|--:|--:|--:|--:|---|"""


class Followed(NamedTuple):
    suggestion: Suggestion
    compiled: Compiled


def suggested(path: Path, *, rejected: bool) -> Iterator[tuple[DumpedModule, list[Suggestion]]]:
    """Yield the costliest module of a dump, with what is suggested for it."""
    dump = open_dump(path)
    facts: ModuleFacts = explain(dump, suggest=suggester(Selection(), is_limited=False)).modules[0]
    (module,) = (each for each in dump.modules if each.number == facts.number)
    found = facts.suggestions
    if found is not None:
        shown = [*found.helpful, *found.unmeasured, *(found.rejected if rejected else ())]
        yield module, [each for each in shown if each.kind is not SuggestionKind.RECIPE]


def follow(module: DumpedModule, suggestions: list[Suggestion], seconds: float) -> list[Followed]:
    compilation = Compilation(sys.executable, seconds=seconds)
    unchanged = compile_unchanged(module, compilation)
    candidates = list(map(read_candidate, suggestions))
    compiled = compile_each(module, candidates, compilation)
    return [
        Followed(shifted(suggestion, unchanged.beside(each.candidate)), each)
        for suggestion, each in zip(suggestions, compiled, strict=True)
    ]


def shifted(suggestion: Suggestion, before: Figures) -> Suggestion:
    """Return a suggestion with the same changes to other figures."""
    old, new = suggestion.before, suggestion.after
    after = Figures(
        before.launches + new.launches - old.launches,
        before.bytes_moved + new.bytes_moved - old.bytes_moved,
    )
    return replace(suggestion, before=before, after=after)


def row(program: str, target: str, suggestion: Suggestion, compiled: Compiled) -> str:
    before, predicted, found = suggestion.before, suggestion.after, compiled.figures
    launches = f"{found.launches:,}" if found is not None else "-"
    moved = size(found.bytes_moved) if found is not None else "-"
    time = compiled.problem
    if compiled.timing is not None:
        ratio = compiled.timing.ratio
        time = f"{ratio.value:.2f} of it ({compiled.timing.verdict})"
    return (
        f"| {program} | {target} | `{suggestion.change.replace('|', '/')}` "
        f"| {before.launches:,} → {predicted.launches:,} | {launches} "
        f"| {size(before.bytes_moved)} → {size(predicted.bytes_moved)} | {moved} | {time} |"
    )


def is_worse(suggestion: Suggestion, compiled: Compiled) -> bool:
    """Return whether it is slower, or the compiler makes more bytes and no fewer launches of it."""
    if compiled.timing is not None:
        return compiled.timing.verdict == "slower"
    before, found = suggestion.before, compiled.figures
    return (
        found is not None
        and found.launches >= before.launches
        and found.bytes_moved > before.bytes_moved
    )


def verdict(suggestion: Suggestion, compiled: Compiled) -> str:
    predicted, found = suggestion.after, compiled.figures
    if found is None:
        return "not compiled"
    is_right = (found.launches, found.bytes_moved) == (predicted.launches, predicted.bytes_moved)
    return "as predicted" if is_right else "other figures"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rejected", action="store_true", help="follow the rejected ones, too")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    options = parser.parse_args()
    rows: list[str] = []
    counts: Counter[str] = Counter()
    for path in (dump for root in options.dumps for dump in dumps(root)):
        try:
            for module, suggestions in suggested(path, rejected=options.rejected):
                target = "CPU" if module.backend == "cpu" else path.parts[-2]
                followed = follow(module, suggestions, options.seconds) if suggestions else []
                counts["programs"] += 1
                counts["programs with a suggestion"] += bool(suggestions)
                for suggestion, compiled in followed:
                    said = verdict(suggestion, compiled)
                    counts[said] += 1
                    if is_worse(suggestion, compiled) and suggestion.pairs:
                        kind = "not timed" if module.backend == "cpu" else "suggested"
                        counts[f"worse and {kind}"] += 1
                        said += ", worse"
                    rows.append(row(path.name, target, suggestion, compiled))
                    print(f"{said}: {rows[-1]}", flush=True)
        except UnusableInput as error:
            counts["unusable"] += 1
            print(f"{path}: {error}", flush=True)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    if options.markdown is not None:
        options.markdown.write_text("\n".join([HEAD, *rows]) + "\n", encoding="utf-8")
    return 1 if counts["worse and suggested"] else 0


if __name__ == "__main__":
    sys.exit(main())
