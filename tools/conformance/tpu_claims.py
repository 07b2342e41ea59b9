"""Tests what experiments claim about refused pairs of TPU programs on new programs.

    python tools/conformance/tpu_claims.py DUMP... --python PYTHON [--pairs 300] [--seed 0]

Draws refused pairs at random from all dumps, lets the compiler answer, and writes three new
programs for each cause: the cut with another size of one dimension, if possible one of the pair's
own. The claim is that the compiler refuses the pair in each of these too, and fuses it once the
same thing is changed as in the first. Prints a line for each pair, and figures for each factor.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.experiments.asking import Compiler
from fusionscope.experiments.cut import Cut, cuts
from fusionscope.experiments.experiment import Experiment, experiment
from fusionscope.experiments.experiments import ends_of
from fusionscope.experiments.factors import FACTORS, Flags, Sizes, changes_of
from fusionscope.experiments.program import Answer
from fusionscope.experiments.resize import resized
from fusionscope.explain.analyze import PairOutcomes
from fusionscope.graph.properties import is_effective_scalar
from fusionscope.history.outcomes import Outcome
from fusionscope.hlo import Module, parse, to_text
from fusionscope.hlo.shape import Shape
from fusionscope.passes.tpu.pair import TpuPairs
from fusionscope.passes.tpu.rules import refusing

_PROGRAMS = 3
_MOST = 60  # programs that are tried to find these
_SHAPE = re.compile(r"(?<=\w\[)[0-9,]+(?=\])")
_TAKEN = re.compile(r"slice_sizes=\{([0-9,]+)\}")
_RANGE = re.compile(r"\[(\d+):(\d+)(:\d+)?\]")
_NAMED = {factor.name: factor for factor in FACTORS}


@dataclass(frozen=True, slots=True)
class Drawn:
    dump: Path
    producer: str
    consumer: str
    rule: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    drawn = [each for dump in options.dumps for each in refused_in(dump)]
    random.Random(options.seed).shuffle(drawn)
    counted: Counter[tuple[str, str]] = Counter()
    chosen = sorted(drawn[: options.pairs], key=lambda each: (each.dump, each.producer))
    compilers: dict[str, Compiler] = {}
    with ExitStack() as opened:
        for pair in chosen:
            module = module_of(pair.dump)
            if str(module.tpu) not in compilers:
                compilers[str(module.tpu)] = opened.enter_context(
                    Compiler(module, python=options.python, limit_s=60, kept=None)
                )
            factor, verdict, words = test(pair, compilers[str(module.tpu)])
            counted[factor, verdict] += 1
            print(
                f"{verdict:<15} {pair.dump.name} {pair.producer} -> {pair.consumer} {pair.rule}: "
                f"{factor} {words}",
                flush=True,
            )
    programs = len({each.dump for each in chosen})
    print(f"\n{len(chosen)} pairs of {programs} programs")
    print_table(counted)


@lru_cache(maxsize=2)
def module_of(dump: Path) -> DumpedModule:
    """Return the largest module."""
    return max(
        open_dump(dump).modules,
        key=lambda module: sum(1 for _ in module.read(module.stages[0]).walk()),
    )


@lru_cache(maxsize=2)
def ends(dump: Path) -> tuple[Module, Module]:
    return ends_of(module_of(dump))


def refused_in(dump: Path) -> Iterator[Drawn]:
    """Yield the refused pairs of more than one element, each that looks alike once."""
    try:
        outcomes = PairOutcomes(module_of(dump))
        ends(dump)
    except UnusableInput as error:
        print(f"left out: {error}")
        return
    pairs, known = TpuPairs(), set()
    for pair in outcomes.costliest_first:
        look = tuple(f"{each.opcode} {each.shape}" for each in (pair.producer, pair.consumer))
        is_small = is_effective_scalar(pair.producer.shape)
        if pair.outcome is Outcome.NOT_FUSED and look not in known and not is_small:
            known.add(look)
            rule = refusing(pairs.of(pair))
            names = pair.producer.name, pair.consumer.name
            yield Drawn(dump, *names, rule.id if rule is not None else "no rule")


def test(pair: Drawn, compiler: Compiler) -> tuple[str, str, str]:
    """Return the cause, what became of its claim, and the change."""
    before, final = ends(pair.dump)
    made = experiment(before, final, pair.producer, pair.consumer, compiler)
    if not made.reproduced:
        return "", "not reproduced", ""
    if made.cause is None:
        return "", "no cause", ""
    flip = made.flips[0]
    words = f"({flip.before} -> {flip.after})"
    cut = next(
        each
        for each in cuts(before, final, pair.producer, pair.consumer)
        if each.around == made.around and compiler.ask(each) is Answer.NOT_FUSED
    )
    tried = list(islice(new_programs(cut, made, compiler), _PROGRAMS))
    if not tried:
        return made.cause, "no new program", words
    verdict = "right" if all(tried) else "WRONG"
    return made.cause, verdict, f"{words} {sum(tried)} of {len(tried)}"


def new_programs(cut: Cut, made: Experiment, compiler: Compiler) -> Iterator[bool]:
    """Yield, for cuts of other sizes that the compiler takes and keeps, whether the claim holds."""
    for new in islice(of_other_sizes(cut, made), _MOST):
        answers = set(changed(new, made, compiler)) - {Answer.FAILED}
        if answers and compiler.ask(new) in (Answer.FUSED, Answer.NOT_FUSED):
            yield Answer.FUSED in answers and compiler.ask(new) is Answer.NOT_FUSED


def of_other_sizes(cut: Cut, made: Experiment) -> Iterator[Cut]:
    """Yield cuts with another size of a dimension of the pair, and then of one of another
    operation: first as the experiments change sizes, then wherever that number is a size in the
    text, in loops too. Some are no valid programs.
    """
    named = {each.name: each for each in cut.module.entry.instructions}
    own = sizes_of(named[each].shape for each in (cut.producer, cut.consumer))
    sizes = list(dict.fromkeys([*own, *sizes_of(each.shape for each in cut.module.walk())]))
    known = {to_text(cut.module)}
    for change in (resized, rewritten):
        for size in sizes:
            if made.cause == Sizes.name and str(size) == made.flips[0].before:
                continue
            for other in (2 * size, size // 2, size + 8, size + 1):
                new = change(cut, size, other) if other > 1 else None
                if new is not None and (text := to_text(new.module)) not in known:
                    known.add(text)
                    yield new


def sizes_of(shapes: Iterable[Shape]) -> list[int]:
    found = dict.fromkeys(
        size
        for shape in shapes
        for part in (shape.elements if shape.is_tuple else (shape,))
        for size in reversed(part.dimensions)
        if size is not None and size > 1
    )
    return list(found)


def rewritten(cut: Cut, old: int, new: int) -> Cut | None:
    """Return the cut with ``new`` wherever its text has a dimension of ``old`` elements, or a slice
    that ends there.
    """

    def sizes(found: re.Match[str]) -> str:
        return re.sub(rf"\b{old}\b", str(new), found[0])

    def taken(found: re.Match[str]) -> str:
        start, stop, step = int(found[1]), int(found[2]), found[3] or ""
        return f"[{start}:{new if stop == old else stop}{step}]"

    text = _SHAPE.sub(sizes, to_text(cut.module))
    text = _RANGE.sub(taken, _TAKEN.sub(sizes, text))
    try:
        return replace(cut, module=parse(text))
    except UnusableInput:
        return None


def changed(cut: Cut, made: Experiment, compiler: Compiler) -> Iterator[Answer]:
    """Yield the answers after each change of the factor that is the cause."""
    assert made.cause is not None
    cuts_so_far = [cut]
    for name in made.cause.split(" and "):
        cuts_so_far = [each for one in cuts_so_far for each in after(one, name, made, compiler)]
    for each in cuts_so_far:
        yield compiler.ask(each)


def after(cut: Cut, name: str, made: Experiment, compiler: Compiler) -> list[Cut]:
    if name == Sizes.name:
        flip = made.flips[0]
        change = Sizes.change(cut, int(flip.before), int(flip.after))
        return [change.cut] if change is not None else []
    factor = Flags(compiler.settings) if name == Flags.name else _NAMED[name]
    return [change.cut for change in changes_of(factor, cut)]


def print_table(counted: Counter[tuple[str, str]]) -> None:
    verdicts = list(dict.fromkeys(verdict for _, verdict in counted))
    print("| cause | " + " | ".join(verdicts) + " |\n|---|" + "--:|" * len(verdicts))
    for factor in sorted({factor for factor, _ in counted}):
        cells = [str(counted[factor, verdict] or "") for verdict in verdicts]
        print(f"| {factor or '-'} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
