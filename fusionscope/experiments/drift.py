"""Asks the compiler which thresholds have moved where the replay differs from a dump."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import NamedTuple

from msgspec.structs import replace

from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.experiments.asking import Compiler
from fusionscope.experiments.cut import Cut, cuts
from fusionscope.experiments.factors import FACTORS, Change, Sizes, TwoSizes, changes_of
from fusionscope.experiments.resize import round_between
from fusionscope.facts.facts import Facts
from fusionscope.history.outcomes import Outcome, pairs_after
from fusionscope.passes.plan import FusionPlan, PassRun
from fusionscope.progress import Progress, silent
from fusionscope.verify.rules_used import replay_one
from fusionscope.verify.thresholds import FittingThreshold, agrees, fitting_thresholds
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.compiler import Compiler as Rules
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs

_MOST_HALVINGS = 8


class Agreement(Facts, frozen=True):
    """Rules and compiler agree once ``what``, which is ``before``, is ``after``.

    what: what was changed
    before: what it was
    after: what it became
    """

    what: str
    before: str
    after: str


class Moved(Facts, frozen=True):
    """A pair about which the rules ``book`` of ``pass_name`` differ from the compiler, which left
    it ``outcome``; in the replay it is ``replayed``.

    pass_name: the pass that is replayed
    book: its rules
    producer: name before the pass
    consumer: name before the pass
    outcome: in the dump, after the pass
    replayed: the outcome in the replay
    around: what the cut has around the pair; empty if there is none on which rules and compiler
        differ
    programs: that cut and its changes
    differing: those of them on which rules and compiler differ
    agreements: changes of the cut after which they agree: of each kind the last, which is the
        smallest
    thresholds: thresholds of the pass with which, each changed alone, rules and compiler agree on
        all programs
    problem: why there is no such cut; empty if there is one
    """

    pass_name: str
    book: str
    producer: str
    consumer: str
    outcome: Outcome
    replayed: Outcome
    around: str = ""
    programs: int = 0
    differing: int = 0
    agreements: tuple[Agreement, ...] = ()
    thresholds: tuple[FittingThreshold, ...] = ()
    problem: str = ""


class Drift(Facts, frozen=True, tag_field="schema", tag="fusionscope.drift/1"):
    """The answers of ``compiler`` about pairs of ``module``, a pass after the other. It is empty if
    there are no such pairs.

    module: name of the module
    rules: the rules that were compared with the dump
    compiler: the compiler that answered, and its target; empty if ``matched`` is 0
    matched: pairs that have another outcome in the replay, over all runs of passes
    compiled: programs about which the compiler was asked
    seconds: how long it took
    pairs: pairs that were asked about, in the order of the passes
    """

    module: str
    rules: str
    compiler: str
    matched: int
    compiled: int
    seconds: float
    pairs: tuple[Moved, ...]


def find_drift(
    module: DumpedModule,
    rules: Rules | None,
    *,
    top: int,
    python: str,
    limit_s: float = 60.0,
    progress: Progress = silent,
) -> Drift:
    """Ask about up to ``top`` pairs of each pass whose replay by ``rules``, or by those of the
    dump's version, differs from the dump. The compiler may take ``limit_s`` seconds for one
    program.

    Raises ``UnusableInput`` if nothing can be replayed, or there is no compiler for the target.
    """
    book = choose_compiler(module, rules).compiler
    context = read_context(module)
    runs = find_runs(module)
    if not runs:
        raise UnusableInput(f"{module.name}: no pass in the dump can be replayed")
    differing = [
        (run, list(_differing_pairs(module, run, plan)))
        for run in runs
        for plan, is_same in [replay_one(module, run, context, book)]
        if not is_same
    ]
    matched = sum(len(pairs) for _, pairs in differing)
    if not matched:
        return Drift(module.name, book.name, "", 0, 0, 0.0, ())
    begin = time.monotonic()
    moved = []
    with (
        Compiler(module, python=python, limit_s=limit_s, cache=None) as compiler,
        ExitStack() as opened,
    ):
        scratch = Path(opened.enter_context(TemporaryDirectory()))
        for run, pairs in differing:
            asking = _Asking(compiler, book, run.pass_name, scratch)
            for pair in pairs[:top]:
                progress(f"{run.pass_name}: {pair[0]} -> {pair[1]}")
                moved.append(_ask(module, run, pair, asking))
        seconds = time.monotonic() - begin
        return Drift(
            module.name,
            book.name,
            compiler.words,
            matched,
            compiler.compiled,
            seconds,
            tuple(moved),
        )


def _differing_pairs(
    module: DumpedModule, run: PassRun, plan: FusionPlan
) -> Iterator[tuple[str, str, Outcome, Outcome]]:
    """Yield the pairs before ``run`` with different outcomes in dump and replay."""
    before = module.read(run.before)
    after = before if run.after is None else module.read(run.after)
    for ours, theirs in zip(
        pairs_after(before, plan.module), pairs_after(before, after), strict=True
    ):
        if ours.outcome is not theirs.outcome:
            yield theirs.producer.name, theirs.consumer.name, theirs.outcome, ours.outcome


class _Program(NamedTuple):
    """What the compiler made of a cut. ``change`` is that of the first one, None for itself."""

    dump: DumpedModule
    differs: bool
    factor: str = ""
    change: Change | None = None


class _Asking:
    """Compiles cuts for ``pass_name``, and compares each with its replay by ``rules``."""

    def __init__(self, compiler: Compiler, rules: Rules, pass_name: str, scratch: Path) -> None:
        self._compiler, self.rules, self.pass_name = compiler, rules, pass_name
        self._scratch = scratch

    def compile(self, cut: Cut, factor: str = "", change: Change | None = None) -> _Program | None:
        """Return the program of ``cut``; None if it is not accepted, or the pass does not run."""
        dump = self._compiler.dump(cut, Path(mkdtemp(dir=self._scratch)))
        if dump is None:
            return None
        try:
            differs = not agrees(dump, self.rules, self.pass_name)
        except UnusableInput:
            return None
        return _Program(dump, differs, factor, change)


def _ask(
    module: DumpedModule, run: PassRun, pair: tuple[str, str, Outcome, Outcome], asking: _Asking
) -> Moved:
    nothing = Moved(run.pass_name, asking.rules.find(run.pass_name).book.name, *pair)
    before = module.read(run.before)
    after = before if run.after is None else module.read(run.after)
    problem = "the compiler accepts no cut with the pair"
    try:
        for cut in cuts(before, after, *pair[:2]):
            program = asking.compile(cut)
            if program is not None and not program.differs:
                problem = "cut out, rules and compiler agree"
            elif program is not None:
                programs = [program, *_variants(cut, asking)]
                ordered = sorted(programs, key=lambda program: not program.differs)
                dumps = [program.dump for program in ordered]
                return replace(
                    nothing,
                    around=cut.around,
                    programs=len(programs),
                    differing=sum(program.differs for program in programs),
                    agreements=tuple(_agreements(programs)),
                    thresholds=tuple(fitting_thresholds(dumps, asking.rules, run.pass_name)),
                )
    except UnusableInput as error:
        problem = error.problem
    return replace(nothing, problem=problem)


def _agreements(programs: Sequence[_Program]) -> Iterator[Agreement]:
    changes = {
        program.factor: program.change
        for program in programs
        if not program.differs and program.change
    }
    for change in changes.values():
        yield Agreement(change.what, change.before, change.after)


def _variants(cut: Cut, asking: _Asking) -> Iterator[_Program]:
    """Yield the programs of all changes of ``cut``, of sizes between those at which rules and
    compiler begin to differ, and of two sizes changed at once.
    """
    for factor in (*FACTORS, TwoSizes()):
        for change in changes_of(factor, cut):
            program = asking.compile(change.cut, factor.name, change)
            if program is not None:
                yield program
                if factor.name == Sizes.name and not program.differs:
                    yield from _halvings(cut, change, asking)


def _halvings(cut: Cut, change: Change, asking: _Asking) -> Iterator[_Program]:
    """Yield programs with sizes between that of ``cut``, on which rules and compiler differ, and
    that of ``change``, on which they do not.
    """
    size = int(change.before)
    differing, same = size, int(change.after)
    for _ in range(_MOST_HALVINGS):
        middle = round_between(differing, same)
        resized = Sizes.change(cut, size, middle) if middle is not None else None
        program = asking.compile(resized.cut, Sizes.name, resized) if resized is not None else None
        if middle is None or program is None:
            return
        yield program
        if program.differs:
            differing = middle
        else:
            same = middle
