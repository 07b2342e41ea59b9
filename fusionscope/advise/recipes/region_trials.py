"""Compiles the regions that changes concern, without and with them, for an absent GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from fusionscope.advise.recipes.flag_trials import FlagTrial
from fusionscope.advise.recipes.part_compiler import PartCompiler
from fusionscope.advise.recipes.recipe import Recipe
from fusionscope.advise.recipes.region_sets import RegionSets
from fusionscope.advise.recipes.regions import Region, cut_region
from fusionscope.advise.recipes.trying import Compilation, Offer, saves_more, suggestion_of
from fusionscope.advise.split_products import FlagOffer
from fusionscope.advise.together import find_together
from fusionscope.advise.worth import why_not_better
from fusionscope.capture.compiler import CompilerProcess
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.facts.result import PairFacts
from fusionscope.facts.suggestions import Figures, HowTried, Suggestion, Together, merged
from fusionscope.facts.times import clock_for, count_figures
from fusionscope.history.kernels import launches_of
from fusionscope.hlo import Module, parse, to_text
from fusionscope.rerun.programs import (
    disabling,
    find_program,
    find_target,
    own_flags,
    require_final,
)
from fusionscope.versions.context import read_context
from fusionscope.versions.recognition import VERSIONS, recognise

# Instructions that are compiled for one module: about ten seconds' worth of one processor.
MOST_COMPILED = 2_000


@dataclass(slots=True)
class RegionTrial:
    """Tries recipes and flags on ``module``, of which one run costs ``figures``.

    ``left`` is the number of instructions that may still be compiled; None means no limit.
    ``untried`` are the offers for which too few are left, or whose region cannot be compiled.
    ``together`` are the best changes to take together, of these and those ``beside`` them, None
    before all were tried.
    """

    module: DumpedModule
    figures: Figures
    compilation: Compilation
    left: int | None = MOST_COMPILED
    untried: list[Offer | FlagOffer] = field(default_factory=list)
    beside: Sequence[Suggestion] = ()
    together: Together | None = None

    def run(
        self, offers: Sequence[Offer | FlagOffer], refused: Sequence[PairFacts]
    ) -> Iterator[Suggestion]:
        """Yield what came of each offer, the one whose region takes longest first. Raises
        ``UnusableInput`` if there is no compiler of the module's version for its device.
        """
        if not offers:
            return
        program = find_program(self.module)
        with _open_compiler(self.module, self.compilation) as process:
            _require_version(self.module, process.versions.get("jaxlib", ""))
            compiler = _Compiler(self.module, process)
            parts = PartCompiler(self.module, process, self._spend)
            flags = FlagTrial(self.figures, parts)
            recipes: dict[str, Recipe] = {}
            helpful = list(self.beside)
            for offer in sorted(offers, key=_time_in(self.module)):
                if isinstance(offer, FlagOffer):
                    suggestion = flags.run(offer, program, refused)
                else:
                    suggestion = self._run(offer, program, compiler, refused, recipes)
                if suggestion is None:
                    self.untried.append(offer)
                    continue
                if not why_not_better(suggestion.before, suggestion.after):
                    helpful.append(suggestion)
                yield suggestion
            sets = RegionSets(program, self.module.backend or "", parts, recipes, flags)
            self.together = find_together(merged(helpful), sets.try_together)

    def _run(
        self,
        offer: Offer,
        program: Module,
        compiler: _Compiler,
        refused: Sequence[PairFacts],
        recipes: dict[str, Recipe],
    ) -> Suggestion | None:
        """Return what comes of a recipe, None if it was not tried. Adds its best variant to
        ``recipes``.
        """
        best = self._best(offer.recipe, program, compiler)
        if best is None:
            return None
        recipes[offer.recipe.id] = best.recipe
        return suggestion_of(
            replace(offer, recipe=best.recipe),
            HowTried.COMPILED if best.region.is_whole else HowTried.REGION,
            offer.pairs(refused),
            self.figures,
            best.change(self.figures),
        )

    def _best(self, recipe: Recipe, program: Module, compiler: _Compiler) -> _Tried | None:
        """Return the best variant of ``recipe``. They are tried until one is no better than the one
        before; None if none was tried.
        """
        best: _Tried | None = None
        for variant in recipe.variants:
            region = cut_region(variant, program, self.module.backend or "")
            if region is None or not self._is_affordable(region, compiler):
                continue
            before, after = compiler.figures(region.before), compiler.figures(region.after)
            if before is None or after is None:
                return best
            attempt = _Tried(variant, region, before, after)
            if best is not None and not saves_more(attempt.after, best.after):
                return best
            best = attempt
        return best

    def _is_affordable(self, region: Region, compiler: _Compiler) -> bool:
        """Return whether compiling ``region`` is within the limit, and if so, count it."""
        return self._spend(sum(map(compiler.work, (region.before, region.after))))

    def _spend(self, work: int) -> bool:
        """Return whether as many instructions are within the limit, and if so, count them."""
        if self.left is None:
            return True
        if work > self.left:
            return False
        self.left -= work
        return True


@dataclass(frozen=True, slots=True)
class _Tried:
    recipe: Recipe
    region: Region
    before: Figures
    after: Figures

    def change(self, figures: Figures) -> Figures:
        """Return the ``figures`` of a module with the difference of the region."""
        times = figures.time_us, self.before.time_us, self.after.time_us
        return Figures(
            figures.launches - self.before.launches + self.after.launches,
            figures.bytes_moved - self.before.bytes_moved + self.after.bytes_moved,
            None if None in times else times[0] - times[1] + times[2],  # type: ignore[operator]
        )


def _open_compiler(module: DumpedModule, compilation: Compilation) -> CompilerProcess:
    return CompilerProcess(
        find_target(module),
        flags=(*own_flags(module), *disabling(module)),
        python=compilation.python,
        limit_s=compilation.limit_s,
    )


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


class _Compiler:
    """Compiles modules as ``module`` was, each once."""

    def __init__(self, module: DumpedModule, process: CompilerProcess) -> None:
        self._backend, self._process = module.backend, process
        self._gpu = read_context(module).gpu
        self._figures: dict[str, Figures | None] = {}

    def work(self, program: Module) -> int:
        """Return how many instructions have to be compiled for the figures of ``program``."""
        if to_text(program) in self._figures:
            return 0
        return sum(len(computation.instructions) for computation in program.computations)

    def figures(self, program: Module) -> Figures | None:
        """Return the figures of ``program``; None if it cannot be compiled."""
        text = to_text(program)
        if text not in self._figures:
            compiled = self._process.compile(text)
            self._figures[text] = None if compiled.problem else self._count(compiled.text)
        return self._figures[text]

    def _count(self, text: str) -> Figures | None:
        try:
            return count_figures(parse(text), self._backend, self._gpu)
        except UnusableInput:
            return None


def _time_in(module: DumpedModule) -> Callable[[Offer | FlagOffer], float]:
    """Return a sort key, by which the offers whose operations take longest come first. The
    framework's names tell which kernels compute them.
    """
    final = require_final(module)
    clock = clock_for(final, module.backend, read_context(module).gpu)
    times: list[tuple[str, float]] = []
    for kernel in launches_of(final, module.backend):
        time = clock.time(kernel) if clock is not None else None
        if time is not None:
            times.append((kernel.instruction.op_name or "", kernel.runs * time.nanoseconds))

    def key(offer: Offer | FlagOffer) -> float:
        prefixes = tuple(offer.op_names)
        return -sum(time for name, time in times if name.startswith(prefixes))

    return key
