"""Compiles the regions that changes concern, without and with them, for an absent GPU, and all of
a program for an absent TPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import inf

from fusionscope.advise.recipes.compiled import CompiledEdit, changed_figures
from fusionscope.advise.recipes.flag_trials import FlagTrial
from fusionscope.advise.recipes.part_compiler import PartCompiler
from fusionscope.advise.recipes.recipe import Recipe, prepare
from fusionscope.advise.recipes.region_sets import RegionSets
from fusionscope.advise.recipes.regions import Region, cut_region, whole_region
from fusionscope.advise.recipes.trying import Compilation, Offer, saves_more, suggestion_of
from fusionscope.advise.split_products import FlagOffer, is_sum_of_parts
from fusionscope.advise.together import find_together
from fusionscope.advise.worth import why_not_better
from fusionscope.capture.compiler import CompilerProcess
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.facts.result import PairFacts
from fusionscope.facts.suggestions import Figures, HowTried, Suggestion, Together, merged
from fusionscope.facts.times import clock_for
from fusionscope.graph.mutable import to_module
from fusionscope.history.kernels import instructions_in, launches_of
from fusionscope.hlo import Module
from fusionscope.rerun.programs import (
    disable_flag,
    find_program,
    find_target,
    own_flags,
    require_final,
)
from fusionscope.versions.context import read_target
from fusionscope.versions.recognition import VERSIONS, recognise
from fusionscope.words.text import duration, size

# Instructions that are compiled for one module, as ``PartCompiler`` counts them.
MOST_COMPILED = 16_000
_FOR_SETS = 0.25  # of these, for several changes together
# Of the module's time: a change that concerns less is tried only where there is no limit.
_LEAST_BOUND = 0.02
# Of the module's time: a change that concerns more, and not in loops alone, is tried on all of the
# program, too: its region is wrong by as much, if the rest is not compiled as it is in the program.
_MUCH_OF_TIME = 0.25
# Of the time after an edit, as much as this may be in kernels that the edit changes and that the
# module does not have, or adds only to move data. With more, a region is no part of the module.
_MOST_FOREIGN = 0.15
# Without it, kernels of the dump may be those that were fastest on its device, which is absent.
_TIMES_NOTHING = "--xla_gpu_autotune_level=0"


@dataclass(slots=True)
class RegionTrial:
    """Tries recipes and flags on ``module``, of which one run costs ``figures``.

    ``most`` is the number of instructions that may be compiled; None means no limit.
    ``untried`` are the offers for which too few are left, or whose region cannot be compiled.
    ``together`` are the best changes to take together, of these and those ``beside`` them, None
    before all were tried.
    """

    module: DumpedModule
    figures: Figures
    compilation: Compilation
    most: int | None = MOST_COMPILED
    untried: list[Offer | FlagOffer] = field(default_factory=list)
    beside: Sequence[Suggestion] = ()
    together: Together | None = None

    def run(
        self, offers: Sequence[Offer | FlagOffer], refused: Sequence[PairFacts]
    ) -> Iterator[Suggestion]:
        """Yield what came of each offer, the one that may save most for its size first. Raises
        ``UnusableInput`` if there is no compiler of the module's version for its device.
        """
        if not offers:
            return
        program = find_program(self.module)
        with ExitStack() as processes:
            compiler = PartCompiler(self.module, lambda: self._start(processes), self.most)
            whole = to_module(prepare(program))
            is_tpu = self.module.backend == "tpu"
            if is_tpu or _TIMES_NOTHING in own_flags(self.module):
                compiler.take_final_for(program)
                compiler.take_final_for(whole)
            flags = FlagTrial(self.figures, compiler)
            recipes: dict[str, Recipe] = {}
            attempts: list[tuple[Offer | FlagOffer, _Search | Suggestion | None]] = []
            searches = self._worthwhile(offers, program, compiler)
            if searches and is_tpu:
                _require_same(program, compiler)
            for search in searches:
                if isinstance(search, FlagOffer):
                    attempts.append((search, flags.run(search, whole, refused)))
                    continue
                attempts.append((search.offer, search))
                while search.best is None and search.variants:
                    self._go_on(search, compiler)
            helpful = list(self.beside)
            # What is left of the limit is for recipes with another number, and for sets of changes.
            reserve = int(_FOR_SETS * self.most) if self.most and len(attempts) > 1 else 0
            compiler.reserve(reserve)
            for offer, result in attempts:
                if isinstance(result, _Search):
                    while result.variants:
                        self._go_on(result, compiler)
                    self._confirm(result, compiler)
                    suggestion = self._suggestion(result, compiler, refused, recipes)
                else:
                    suggestion = result
                if suggestion is None:
                    self.untried.append(offer)
                    continue
                if not suggestion.why_not and not why_not_better(
                    suggestion.before, suggestion.after, self.module.backend
                ):
                    helpful.append(suggestion)
                yield suggestion
            compiler.reserve(-reserve)
            sets = RegionSets(program, compiler, recipes, flags)
            self.together = find_together(merged(helpful), sets.try_together, self.module.backend)

    def _start(self, processes: ExitStack) -> CompilerProcess:
        """Return the compiler, which ends with ``processes``. Raises as ``run`` does."""
        process = processes.enter_context(_open_compiler(self.module, self.compilation))
        _require_version(self.module, process.versions.get("jaxlib", ""))
        return process

    def _worthwhile(
        self, offers: Iterable[Offer | FlagOffer], program: Module, compiler: PartCompiler
    ) -> list[_Search | FlagOffer]:
        """Return the changes that can save most for each instruction to compile first, without
        those that can save next to nothing: no more than the time of what they concern.
        """
        times = _OperationTimes(self.module, program)
        all_us = self.figures.time_us or 0.0
        least = 0.0 if self.most is None else _LEAST_BOUND * all_us
        gains: list[tuple[float, _Search | FlagOffer]] = []
        for offer in offers:
            if isinstance(offer, FlagOffer) and not offer.sums:
                gains.append((0.0, offer))  # it concerns all of the program, a little
                continue
            bound = (
                times.sums_of_parts_us if isinstance(offer, FlagOffer) else times.of(offer.op_names)
            )
            if bound < least:
                self.untried.append(offer)
            elif isinstance(offer, FlagOffer):
                gains.append((bound / (compiler.work([program], (), offer.flags) or inf), offer))
            else:
                concerns_much = bound > _MUCH_OF_TIME * all_us
                search = _Search(offer, program, compiler, concerns_much)
                gains.append((bound / (search.work or inf), search))
        return [search for _, search in sorted(gains, key=lambda gain: -gain[0])]

    def _suggestion(
        self,
        search: _Search,
        compiler: PartCompiler,
        refused: Sequence[PairFacts],
        recipes: dict[str, Recipe],
    ) -> Suggestion | None:
        """Return what came of a recipe, None if it was not tried. Adds its best variant to
        ``recipes``.
        """
        offer, best = search.offer, search.best
        if best is None:
            return None
        recipes[offer.recipe.id] = best.recipe
        suggestion = suggestion_of(
            replace(offer, recipe=best.recipe),
            HowTried.COMPILED if best.region.is_whole else HowTried.REGION,
            offer.pairs(refused),
            self.figures,
            best.figures,
        )
        return replace(suggestion, why_not=compiler.why_not_certain(best.parts, suggestion))

    def _go_on(self, search: _Search, compiler: PartCompiler) -> None:
        """Try the next variant of a recipe, the last one if it is no better than the one before."""
        if (choice := search.take()) is None:
            return
        variant, region = choice
        attempt = self._try(variant, region, compiler)
        if attempt is not None and not self._is_part(attempt, compiler):
            search.cut = whole_region
            whole = whole_region(variant, search.program, compiler.backend)
            attempt = self._try(variant, whole, compiler) if whole is not None else None
        if attempt is None:
            return
        if search.best is None or saves_more(attempt.figures, search.best.figures):
            search.best = attempt
        else:
            search.variants.clear()

    def _confirm(self, search: _Search, compiler: PartCompiler) -> None:
        """Try the best variant of what concerns much of the time on all of the program, within the
        limit, unless it helps nowhere: what is next to its region may be compiled otherwise.
        """
        best = search.best
        if best is None or best.region.is_whole or best.region.is_apart:
            return
        if search.concerns_much and not why_not_better(self.figures, best.figures):
            whole = whole_region(best.recipe, search.program, compiler.backend)
            attempt = self._try(best.recipe, whole, compiler) if whole is not None else None
            search.best = attempt or best

    def _try(self, recipe: Recipe, region: Region, compiler: PartCompiler) -> _Tried | None:
        """Return what came of ``region``; None if it cannot be compiled, or within the limit."""
        if not compiler.is_affordable(region.modules, ()):
            return None
        parts: list[CompiledEdit] = []
        for edit in region.edits:
            before, after = compiler.contents(edit.before), compiler.contents(edit.after)
            if before is None or after is None:
                return None
            parts.append(CompiledEdit(before, after, edit.times))
        return _Tried(recipe, region, self.figures, tuple(parts))

    def _is_part(self, attempt: _Tried, compiler: PartCompiler) -> bool:
        """Return whether the kernels that an edit changes are those of the module, too."""
        foreign = sum(
            part.times * part.before.time_apart_from(part.after, compiler.final)
            for part in attempt.parts
        )
        return attempt.region.is_apart or foreign <= _MOST_FOREIGN * (attempt.figures.time_us or 0)


@dataclass(slots=True)
class _Search:
    """The search for the best variant of a recipe: the ``variants`` that are left, how they are
    ``cut`` out of ``program``, and the ``best`` so far. ``concerns_much`` is whether the recipe
    concerns much of the time of the program.
    """

    offer: Offer
    program: Module
    compiler: PartCompiler
    concerns_much: bool
    variants: list[Recipe] = field(init=False)
    cut: Callable[[Recipe, Module, str], Region | None] = cut_region
    best: _Tried | None = None
    _region: Region | None = None

    def __post_init__(self) -> None:
        self.variants = list(self.offer.recipe.variants)
        if self.compiler.backend == "tpu":  # which compiles most programs in a few seconds
            self.cut = whole_region

    def has_next(self) -> bool:
        """Return whether a variant is left. Drops those before it that do not fit, or are beyond
        the limit.
        """
        while self.variants:
            if self._region is None:
                self._region = self._least_region(self.variants[0])
            if self._region and self.compiler.is_affordable(self._region.modules, ()):
                return True
            self._region = None
            del self.variants[0]
        return False

    def _least_region(self, recipe: Recipe) -> Region | None:
        """Return the region to compile, all of the program if that is no more work."""
        region = self.cut(recipe, self.program, self.compiler.backend)
        if region is None or region.is_whole or region.is_apart:
            return region
        whole = whole_region(recipe, self.program, self.compiler.backend)
        if whole is None or self._work(whole) > self._work(region):
            return region
        return whole

    def _work(self, region: Region) -> int:
        return self.compiler.work(region.modules, ())

    def take(self) -> tuple[Recipe, Region] | None:
        """Return the next variant with its region, and go on; None if there is none."""
        if not self.has_next() or self._region is None:
            return None
        region, self._region = self._region, None
        return self.variants.pop(0), region

    @property
    def work(self) -> int:
        """How much of the limit the next variant takes, none if there is no such."""
        return self._work(self._region) if self.has_next() and self._region is not None else 0


@dataclass(frozen=True, slots=True)
class _Tried:
    """What the ``parts`` of ``region``, which ``recipe`` changes, compile to. The program has the
    figures ``all_before``.
    """

    recipe: Recipe
    region: Region
    all_before: Figures
    parts: tuple[CompiledEdit, ...]

    @property
    def figures(self) -> Figures:
        """The figures of the program after the edit."""
        return changed_figures(self.all_before, self.parts)


def _open_compiler(module: DumpedModule, compilation: Compilation) -> CompilerProcess:
    return CompilerProcess(
        find_target(module),
        flags=(*own_flags(module), *disable_flag(module)),
        python=compilation.python,
        limit_s=compilation.limit_s,
    )


def _require_same(program: Module, compiler: PartCompiler) -> None:
    """Raises ``UnusableInput`` if ``program``, all of the module, compiles to something else than
    in the dump, which does not have all flags for a TPU.
    """
    figures = compiler.figures_again(program)
    expected = compiler.final.figures
    if figures is None:
        raise UnusableInput("the program cannot be compiled here, or within the limit (--all)")
    if figures != expected:
        raise UnusableInput(
            f"compiled here, the program is not as in the dump: {_words(figures)}, expected "
            f"{_words(expected)}",
            hint="it is of another libtpu (--python), or of other flags (LIBTPU_INIT_ARGS)",
        )


def _words(figures: Figures) -> str:
    time = f"{duration(figures.time_us)}, " if figures.time_us is not None else ""
    return f"{time}{figures.launches:,} launches, {size(figures.bytes_moved)}"


def _require_version(module: DumpedModule, jaxlib: str) -> None:
    """Raises ``UnusableInput`` if another version made the dump: it decides differently."""
    recognised = recognise(module)
    matching = [name for name in VERSIONS if _is_within(jaxlib, name)]
    if matching and recognised.versions and not set(matching) & set(recognised.versions):
        raise UnusableInput(
            f"the dump is of {recognised}, and this Python has jaxlib {jaxlib}",
            hint=f"name another with --python, after pip install jax=={recognised.versions[-1]}",
        )


def _is_within(jaxlib: str, version: str) -> bool:
    """Return whether ``version`` is ``jaxlib``, or the series that it belongs to."""
    return f"{jaxlib}.".startswith(f"{version}.")


class _OperationTimes:
    """How long the operations of a program take. The framework's names tell which kernels compute
    them. ``sums_of_parts_us`` is the time of kernels that add up parts of products, in
    microseconds.
    """

    def __init__(self, module: DumpedModule, program: Module) -> None:
        names = {instruction: instruction.op_name or "" for instruction in program.walk()}
        self._reads = {
            (names[operand], name)
            for instruction, name in names.items()
            for operand in instruction.operands
        }
        self.sums_of_parts_us = 0.0
        self._kernels: list[tuple[frozenset[str], float]] = []
        final = require_final(module)
        clock = clock_for(final, module.backend, read_target(module))
        for kernel in launches_of(final, module.backend):
            time = clock.time(kernel) if clock is not None else None
            if time is None:
                continue
            operations = (kernel.instruction, *instructions_in(kernel.instruction))
            inside = frozenset(operation.op_name for operation in operations if operation.op_name)
            time_us = kernel.runs * time.nanoseconds / 1_000
            self._kernels.append((inside, time_us))
            if any(map(is_sum_of_parts, operations)):
                self.sums_of_parts_us += time_us

    def of(self, names: Collection[str]) -> float:
        """Return the time of the kernels with operations of these names, in them, or that read
        one of them, in microseconds.
        """
        prefixes = tuple(names)
        readers = {reader for name, reader in self._reads if name in names}
        return sum(
            time
            for inside, time in self._kernels
            if not readers.isdisjoint(inside) or any(name.startswith(prefixes) for name in inside)
        )
