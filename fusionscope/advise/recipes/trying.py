"""Finds the recipes that match a module, and compiles their results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.advise.recipes.catalogue import RECIPES, read_recipe
from fusionscope.advise.recipes.recipe import Recipe, apply_recipe, prepare
from fusionscope.advise.recipes.rewriting import rewrite
from fusionscope.advise.removed import removed_movements
from fusionscope.advise.settled import settled_pairs
from fusionscope.advise.together import ADDS_NOTHING, EXCLUDED, NOT_TRIED, Result
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Program, ProgramKind
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.facts.result import PairFacts
from fusionscope.facts.source_lines import user_line
from fusionscope.facts.suggestions import Figures, HowTried, Suggestion, SuggestionKind
from fusionscope.facts.times import count_figures
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.kernels import total_kernels
from fusionscope.hlo import Module, to_text
from fusionscope.hlo.source import source_stack
from fusionscope.rerun.injection import Injection
from fusionscope.rerun.measuring import Speed
from fusionscope.rerun.programs import disable_flag, find_program, find_target, own_flags
from fusionscope.rerun.racing import Race, Racer, race
from fusionscope.rerun.running import Numbers, measure, why_not_run
from fusionscope.system.files import write_file
from fusionscope.versions.context import read_target

_ENOUGH = 0.98  # of the time with another variant of a recipe: one that saves less is no better


@dataclass(frozen=True, slots=True)
class Offer:
    """A recipe that matches a module, at the operations with the framework's names ``op_names``, on
    the user's lines ``sources``.
    """

    recipe: Recipe
    op_names: frozenset[str]
    sources: tuple[str, ...]

    def pairs(self, refused: Iterable[PairFacts]) -> list[tuple[str, str]]:
        """Return those of ``refused`` with an operation that the edit changes."""
        return [
            _names(pair)
            for pair in refused
            if any(end.op_name in self.op_names for end in (pair.producer, pair.consumer))
        ]


def find_offers(module: DumpedModule) -> list[Offer]:
    """Return the recipes that match the program of ``module`` and help on its backend. Raises
    ``UnusableInput`` if the dump lacks the program.
    """
    helping = [recipe for recipe in RECIPES if module.backend in recipe.backends]
    if module.backend is None or not helping:
        return []
    program = find_program(module)
    graph = prepare(program)
    offers = []
    for recipe in helping:
        sites = _sites(recipe, graph, module.backend)
        if sites:
            names = frozenset(site["op_name"] for site in sites if "op_name" in site)
            lines = (user_line(source_stack(site, program.frames)) for site in sites)
            sources = dict.fromkeys(str(line) for line in lines if line is not None)
            offers.append(Offer(recipe, names, tuple(sources)))
    return offers


def _sites(recipe: Recipe, graph: MutableModule, backend: str) -> list[Mapping[str, str]]:
    """Return the metadata of the places of ``recipe``, with the first of its limits that fits."""
    for variant in recipe.variants:
        sites = [site.at.attribute("metadata") or {} for site in variant.find(graph, backend)]
        if sites:
            return sites
    return []


def untried(
    offers: Iterable[Offer], refused: Sequence[PairFacts], figures: Figures
) -> Iterator[Suggestion]:
    """Return each offer without having tried it: its ``figures`` are those of the module."""
    for offer in offers:
        yield suggestion_of(offer, HowTried.UNTRIED, offer.pairs(refused), figures, figures)


def _names(pair: PairFacts) -> tuple[str, str]:
    return pair.producer.name, pair.consumer.name


def suggestion_of(
    offer: Offer,
    how: HowTried,
    pairs: Iterable[tuple[str, str]],
    before: Figures,
    after: Figures,
) -> Suggestion:
    return Suggestion(
        number=0,
        kind=SuggestionKind.RECIPE,
        change=offer.recipe.id,
        evidence=how,
        pairs=tuple(sorted(set(pairs))),
        before=before,
        after=after,
        title=offer.recipe.words,
        recipe=offer.recipe.spelling,
        sources=offer.sources,
    )


@dataclass(frozen=True, slots=True)
class Tried:
    """``race`` is its measurement beside the unchanged program, None if nothing was measured."""

    suggestion: Suggestion
    race: Race | None


@dataclass(frozen=True, slots=True)
class Compilation:
    """How modules are compiled again: the Python interpreter, the time limit in seconds, and how
    long each program runs if its device is present.
    """

    python: str
    limit_s: float = 600.0
    seconds: float = 1.0


def by_compiler(
    module: DumpedModule,
    offers: Sequence[Offer],
    refused: Sequence[PairFacts],
    compilation: Compilation,
) -> tuple[list[Tried], list[str]]:
    """Return each offer with the compiled module before and after the edit, and the problems.

    The programs are timed if the device is present. A problem is a program that could not be
    compiled or computes something else. Raises ``UnusableInput`` if the unchanged program cannot be
    compiled.
    """
    attempts: list[Tried] = []
    problems: list[str] = []
    if not offers:
        return attempts, problems
    program = find_program(module)
    with TemporaryDirectory() as scratch:
        compiler = _Compiler(module, Path(scratch), compilation)
        baseline = compiler.compile(program)
        refused_pairs = frozenset(map(_names, refused)) - settled_pairs(module, baseline)
        for offer in offers:
            try:
                best = _best(compiler, offer, program, baseline, refused_pairs)
            except UnusableInput as error:
                problems.append(f"{offer.recipe.id}: {error}")
                continue
            if best is not None:
                attempts.append(best)
    return attempts, problems


def try_together(
    module: DumpedModule, changes: Sequence[Suggestion], compilation: Compilation
) -> Result:
    """Return what comes of flags and recipes together, by compiling ``module`` with all of them, or
    why that is unknown. On a CPU the last change has to be faster than the others alone.
    """
    flags = _flags(changes)
    if len({flag.partition("=")[0] for flag in flags}) < len(flags):
        return NOT_TRIED
    try:
        program = _rewritten(module, changes)
    except UnusableInput:
        return EXCLUDED
    try:
        with TemporaryDirectory() as scratch:
            dump = _Compiler(module, Path(scratch), compilation).compile(program, flags)
            figures = _figures(dump, None)
        if module.backend != "cpu":
            return figures, HowTried.COMPILED
        after = Injection(program=program, flags=tuple(flags))
        return _measure_last(module, changes, after, figures, compilation)
    except UnusableInput:
        return NOT_TRIED


def _flags(changes: Iterable[Suggestion]) -> list[str]:
    return [word for change in changes if not change.recipe for word in change.change.split()]


def _rewritten(module: DumpedModule, changes: Iterable[Suggestion]) -> Module:
    """Return the program after the recipes among ``changes``. Raises ``UnusableInput`` if one of
    them fits nowhere.
    """
    return rewrite(module, (read_recipe(change.recipe) for change in changes if change.recipe))


def _measure_last(
    module: DumpedModule,
    changes: Sequence[Suggestion],
    after: Injection,
    figures: Figures,
    compilation: Compilation,
) -> Result:
    """Return ``figures`` with the time of the program ``after`` all of ``changes``, as a share of
    that of the unchanged one, if the last of them makes it faster and its results are the same.
    Raises ``UnusableInput`` if it cannot be run.
    """
    first, *_ = changes
    earlier = changes[:-1]
    before = Injection(program=_rewritten(module, earlier), flags=tuple(_flags(earlier)))
    runs = measure(
        module,
        before,
        [after, Injection()],
        seconds=3 * compilation.seconds,
        python=compilation.python,
        limit_s=compilation.limit_s,
    )
    timings = [run.timing for run in runs if run.numbers is not Numbers.DIFFERENT]
    with_all, unchanged = timings if len(timings) == len(runs) else (None, None)
    if with_all is None or unchanged is None or first.before.time_us is None:
        return NOT_TRIED
    if with_all.verdict is not Speed.FASTER:
        return ADDS_NOTHING
    share = with_all.variant_ns / unchanged.variant_ns
    return replace(figures, time_us=first.before.time_us * share), HowTried.MEASURED


def _best(
    compiler: _Compiler,
    offer: Offer,
    program: Module,
    baseline: DumpedModule,
    refused_pairs: frozenset[tuple[str, str]],
) -> Tried | None:
    """Return the best variant of a recipe. They are tried until one saves not noticeably more than
    the one before. Raises ``UnusableInput`` for one that cannot be compiled, or computes something
    else.
    """
    best: Tried | None = None
    for recipe in offer.recipe.variants:
        rewritten = apply_recipe(recipe, program, compiler.module.backend or "")
        if rewritten is None:
            continue
        variant = replace(offer, recipe=recipe)
        attempt = _try(compiler, variant, rewritten.module, baseline, refused_pairs)
        if best is not None and not saves_more(attempt.suggestion.after, best.suggestion.after):
            return best
        best = attempt
    return best


def saves_more(after: Figures, best: Figures) -> bool:
    """Return whether ``after`` is noticeably less time than ``best``."""
    return (
        after.time_us is not None
        and best.time_us is not None
        and after.time_us < best.time_us * _ENOUGH
    )


def _try(
    compiler: _Compiler,
    offer: Offer,
    edited: Module,
    baseline: DumpedModule,
    refused_pairs: frozenset[tuple[str, str]],
) -> Tried:
    module = compiler.module
    dump = compiler.compile(edited)
    races = compiler.race(baseline, dump)
    if races and not _computes_the_same(races[1]):
        raise UnusableInput("its results differ on random inputs")
    how = HowTried.MEASURED if races else HowTried.COMPILED
    before, after = (
        _figures(side, races[number] if races else None)
        for number, side in enumerate((baseline, dump))
    )
    pairs = settled_pairs(module, dump) & refused_pairs
    suggestion = suggestion_of(offer, how, pairs, before, after)
    return Tried(replace(suggestion, removes=_removes(module, dump)), races[1] if races else None)


@dataclass(frozen=True, slots=True)
class _Compiler:
    """Compiles programs in the same way as ``module``."""

    module: DumpedModule
    scratch: Path
    compilation: Compilation

    def compile(self, program: Module, flags: Iterable[str] = ()) -> DumpedModule:
        name = f"{len(list(self.scratch.iterdir()))}"
        file = self.scratch / f"{name}.hlo"
        write_file(file, to_text(program))
        captured = capture(
            Program(kind=ProgramKind.HLO, file=file),
            find_target(self.module),
            self.scratch / name,
            flags=[*own_flags(self.module), *disable_flag(self.module), *flags],
            python=self.compilation.python,
            limit_s=self.compilation.limit_s,
        )
        if captured.problem:
            raise UnusableInput(f"cannot be compiled: {captured.problem}")
        (dump,) = open_dump(captured.directory).modules
        return dump

    def race(self, *modules: DumpedModule) -> list[Race]:
        """Return the measurements, empty if they cannot be run here."""
        if why_not_run(self.module):
            return []
        return race(
            [Racer(module, Injection()) for module in modules],
            seconds=self.compilation.seconds,
            python=self.compilation.python,
            limit_s=self.compilation.limit_s,
        )


def _removes(module: DumpedModule, dump: DumpedModule) -> tuple[str, ...]:
    assert module.final is not None and dump.final is not None
    before, after = module.read(module.final), dump.read(dump.final)
    return removed_movements(before, before, after, module.backend)


def _computes_the_same(run: Race) -> bool:
    return bool(run.results) and all(
        result.verdict is not Numbers.DIFFERENT for result in run.results
    )


def _figures(module: DumpedModule, run: Race | None) -> Figures:
    """Return the figures of the final module; times are measured if it was run, else estimates."""
    assert module.final is not None
    final = module.read(module.final)
    if run is not None:
        totals = total_kernels(final, module.backend)
        return Figures(totals.launches, totals.bytes_moved, run.run_ns / 1_000)
    return count_figures(final, module.backend, read_target(module))
