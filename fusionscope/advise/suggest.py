"""Finds changes that help by trying them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, zip_longest
from math import inf, isinf

from fusionscope.advise.candidates import (
    Candidate,
    flag_candidates,
    keep_candidate,
    rule_candidates,
)
from fusionscope.advise.recipes.region_trials import MOST_COMPILED, RegionTrial
from fusionscope.advise.recipes.trying import (
    Compilation,
    Offer,
    by_compiler,
    find_offers,
    try_together,
    untried,
)
from fusionscope.advise.replays import Replays
from fusionscope.advise.split_products import FlagOffer, find_flag_offers
from fusionscope.advise.together import find_together
from fusionscope.advise.worth import why_not_better
from fusionscope.dump import DumpedModule
from fusionscope.dump.device import Device
from fusionscope.errors import UnusableInput
from fusionscope.explain.explain import Suggest
from fusionscope.explain.selection import Selection
from fusionscope.facts.result import ModuleFacts, PairFacts, Summary
from fusionscope.facts.suggestions import (
    Answer,
    Figures,
    HowTried,
    Suggestion,
    SuggestionKind,
    Suggestions,
    Together,
    by_gain,
    merged,
)
from fusionscope.facts.summary import group_alike
from fusionscope.findings.recomputed.facts import Recomputation
from fusionscope.history.outcomes import Outcome
from fusionscope.passes.causes import CAUSES
from fusionscope.passes.context import OutOfTime
from fusionscope.progress import Progress, counted, silent
from fusionscope.rerun.measuring import Ratio, Speed
from fusionscope.rerun.programs import find_program, find_target, require_final
from fusionscope.rerun.running import why_not_run
from fusionscope.rules.pages import read_page
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.known import compiler_named
from fusionscope.what_if.changed_passes import ChangedPasses, Orders

MOST_REFUSALS = 20  # kinds of refusals for which changes are tried
MOST_ANSWERS = 10  # kinds of refusals that always get an answer
_MOST_COMPILED = 12  # changes that a CPU compiles and times
# Operations that may be replayed for one module, as ``Replays`` counts them: two or three seconds'
# worth. A count is the same on a busy machine.
_MOST_OPERATIONS = {"cpu": 10_000, "gpu": 20_000}

_MOST_KEPT, _MOST_KEPT_ALONE = 8, 3  # values that several kernels compute
_MOST_COMBINED = 4  # changes of which the best one is combined with each other one

_NOT_REPLAYED = "no change can be tried by replaying the fusion passes: {}"
_NOT_COMPILED = "no change can be compiled: {}"
_NOT_TIMED = "no flag and no rule was compiled, since none could be timed: {}"
_OTHER_CODE = (
    "some changes make other code compute what the library computes now, which can take several "
    "times as long: only a measurement tells (--compile)"
)
_ROUGH_TIMES = (
    "a pass after fusion changes the code of kernels here, so the estimated times of replayed "
    "changes are rough: launches and bytes are not"
)
_DISAGREES = (
    "the replay of {} does not make the kernels that are in the dump, so its changes cannot be "
    "tried by replaying: --compile"
)
_COPIES = (
    "some changes to {} also change what the compiler copies after fusion, at a cost that only it "
    "can tell: --compile"
)
_LEFT_TO_ORDER = (
    "no change was replayed: which copies the compiler makes after fusion depends on the order of "
    "kernels here, and only it can tell what they cost: --compile"
)


def suggester(
    selection: Selection,
    *,
    is_limited: bool = True,
    compilation: Compilation | None = None,
    regions: Compilation | None = None,
) -> Suggest:
    """Return the function that ``explain`` calls for each module.

    It replays a limited number of operations, unless ``is_limited`` is false or there is a
    ``compilation``: then changes are also compiled, and timed if the device is present. With
    ``regions``, what recipes change is compiled for an absent GPU. Raises ``UnusableInput`` if no
    rules have the name in ``selection``.
    """
    compiler = compiler_named(selection.rules)
    is_fast = is_limited and compilation is None

    def ask(module: DumpedModule, facts: ModuleFacts, progress: Progress) -> Suggestions:
        device = selection.device if _lacks_device(module) else None
        return suggest(
            module,
            facts,
            most_operations=_MOST_OPERATIONS.get(module.backend or "", 0) if is_fast else None,
            compiler=compiler,
            device=device,
            compilation=compilation,
            regions=regions,
            progress=progress,
        )

    return ask


def _lacks_device(module: DumpedModule) -> bool:
    try:
        return module.device is None
    except UnusableInput:
        return True


def suggest(
    module: DumpedModule,
    facts: ModuleFacts,
    *,
    most_operations: int | None,
    compiler: Compiler | None = None,
    device: Device | None = None,
    compilation: Compilation | None = None,
    regions: Compilation | None = None,
    progress: Progress = silent,
) -> Suggestions:
    """Try changes that could help ``module``, which ``facts`` explain with all of its pairs.

    ``most_operations`` limits the operations that are replayed; None means no limit. ``compiler``
    and ``device`` are those to replay, by default those of the dump. With a ``compilation``,
    changes are also tried by the compiler; with ``regions``, recipes for GPUs are, on what they
    change.
    """
    refused = [pair for pair in facts.pairs if pair.outcome == Outcome.NOT_FUSED]
    refused.sort(key=lambda pair: -pair.bytes_saved)
    groups = group_alike(refused, lambda pair: pair.reason)[:MOST_REFUSALS]
    trial = _Trial(module, refused, compilation, progress, most_operations)
    replays: Replays | None = None
    replayable: list[Candidate] = []
    recomputed = facts.find(Recomputation)
    if refused or recomputed is not None:
        try:
            final = module.read(module.last)
            replays = Replays(module, final, compiler, device, _figures(facts.summary))
            candidates = _candidates(module, replays, groups)
        except UnusableInput as error:
            trial.note(_NOT_REPLAYED.format(error))
            replays = None
        else:
            replayable = list(filter(replays.can_try, candidates))
            if trial.can_replay(replays, replayable):
                trial.replay(replays, replayable)
                trial.combine(replays)
                trial.keep(replays, recomputed, compiler, device)
            trial.compile([candidate for candidate in candidates if candidate not in replayable])
    trial.apply_recipes(regions, _figures(facts.summary))
    if replays is None:
        return trial.suggestions()
    answers = (trial.answer(alike, replayable, replays) for alike in groups[:MOST_ANSWERS])
    return replace(trial.suggestions(), answers=tuple(answers))


def _candidates(
    module: DumpedModule, replays: Replays, groups: Sequence[Sequence[PairFacts]]
) -> list[Candidate]:
    """Return each candidate once: flags and changes of rules alternately, these in the order of the
    bytes that the rules refused.
    """
    names = replays.names()
    compiler = replays.compiler
    # The first change for each kind of refusal, then the second one for each.
    rules = chain.from_iterable(
        zip_longest(*(rule_candidates(compiler, alike, names) for alike in groups))
    )
    flags = flag_candidates(module)
    turns = chain.from_iterable(zip_longest(flags, filter(None, rules)))
    unique: dict[str, Candidate] = {}
    for turn in filter(None, turns):
        duplicate = unique.get(turn.change)
        unique[turn.change] = (
            replace(turn, pairs=duplicate.pairs + turn.pairs) if duplicate else turn
        )
    return list(unique.values())


class _Trial:
    """The changes that were tried on a module so far, with their results."""

    def __init__(
        self,
        module: DumpedModule,
        refused: Sequence[PairFacts],
        compilation: Compilation | None,
        progress: Progress,
        most_operations: int | None,
    ) -> None:
        self._module = module
        self._most_operations = most_operations
        self._operations_left = inf if most_operations is None else most_operations
        self._progress = progress
        self._refused = refused
        self._wanted = frozenset((pair.producer.name, pair.consumer.name) for pair in refused)
        self._compilation = compilation
        self._promising: list[tuple[Candidate, Suggestion]] = []
        self._replayed: list[Candidate] = []
        self._disagreeing: list[Candidate] = []
        self._notes: dict[str, None] = {}
        self._untried: list[Candidate] = []
        self._in_vain: list[Candidate] = []
        self._helpful: list[Suggestion] = []
        self._untried_recipes: list[Suggestion] = []
        self._unmeasured: list[Suggestion] = []
        self._rejected: list[Suggestion] = []
        self._best_set: Together | None = None

    def note(self, problem: str) -> None:
        self._notes.setdefault(problem)

    def suggestions(self) -> Suggestions:
        """Return everything in order. Recipes that were not tried come last."""
        return Suggestions(
            helpful=(*sorted(merged(self._helpful), key=by_gain), *self._untried_recipes),
            unmeasured=tuple(sorted(merged(self._unmeasured), key=by_gain)),
            rejected=tuple(sorted(self._rejected, key=by_gain)),
            untried=len(self._untried),
            notes=tuple(self._notes),
            cannot_rerun=_why_not_rerun(self._module),
            together=self._best_set,
        ).numbered()

    def answer(
        self, alike: Sequence[PairFacts], replayable: Sequence[Candidate], replays: Replays
    ) -> Answer:
        """Return what is known about refusals that look ``alike``."""
        pairs = tuple(
            dict.fromkeys(
                (pair_or_change.producer.name, pair_or_change.consumer.name)
                for pair_or_change in alike
            )
        )
        own_candidates = [
            pair_or_change
            for pair_or_change in replayable
            if not set(pairs).isdisjoint(pair_or_change.pairs)
        ]
        flags = [
            pair_or_change.change
            for pair_or_change in self._in_vain
            if pair_or_change.kind is SuggestionKind.FLAG
        ]
        flags += [
            pair_or_change.change
            for pair_or_change in (*self._helpful, *self._unmeasured, *self._rejected)
            if pair_or_change.kind is SuggestionKind.FLAG
            and set(pairs).isdisjoint(pair_or_change.pairs)
        ]
        in_vain = [
            *(
                pair_or_change.change
                for pair_or_change in own_candidates
                if pair_or_change in self._in_vain
            ),
            *flags,
        ]
        return Answer(
            pairs=pairs,
            in_vain=tuple(dict.fromkeys(in_vain)),
            untried=sum(pair_or_change in self._untried for pair_or_change in own_candidates),
            why=self._why_fixed(alike[0], replays) if not own_candidates else "",
        )

    def _why_fixed(self, pair: PairFacts, replays: Replays) -> str:
        """Return why no change of a rule is known that could fuse a pair."""
        reason = pair.reason or ""
        cause = next((cause_known for cause_known in CAUSES if cause_known.id == reason), None)
        compiler = replays.compiler
        fixed = compiler.find_rule(reason) or cause
        if fixed is None:
            return ""
        deciding = [
            fusion_pass.name for fusion_pass in compiler.passes if fusion_pass.book.find(reason)
        ]
        if cause is not None and cause.pass_name != "any":
            deciding = [cause.pass_name]
        why = _why(fixed.id) if fixed.is_legality else ""
        if not deciding or replays.replays_all(deciding):
            return why
        words = [why] if why else []
        words.append(f"only flags change what {' and '.join(deciding)} does")
        if self._compilation is None:
            words.append("--compile tries them")
        return "; ".join(words)

    def can_replay(self, replays: Replays, candidates: Sequence[Candidate]) -> bool:
        """Return whether a replay of any of ``candidates`` is within the limit, and its result
        could be used. Without a limit, all are replayed, since the compiler tries them then.
        """
        most = self._most_operations
        if most is None or not candidates:
            return True
        if min(map(replays.count_operations, candidates)) > most:
            self._untried += candidates
            return False
        if not replays.can_predict:
            self.note(_LEFT_TO_ORDER)
            return False
        return True

    def replay(self, replays: Replays, candidates: Sequence[Candidate]) -> None:
        """Replay with each of ``candidates`` that is within the limit of operations."""
        together = self._together(replays, candidates)
        replays.expect(together, most_work=self._most_operations)
        for candidate in counted(candidates, "trying change", self._progress):
            if candidate not in together and not self._is_affordable(
                replays.count_operations(candidate)
            ):
                self._untried.append(candidate)
                continue
            try:
                self._replay(replays, candidate)
            except OutOfTime:
                self._untried.append(candidate)
            except UnusableInput as error:
                self.note(str(error))

    def _together(self, replays: Replays, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return those of ``candidates`` that one replay tries together, if it is not too long."""
        together = list(filter(replays.follows, candidates))
        operations = max(map(replays.count_operations, together), default=0)
        return together if self._is_affordable(operations) else []

    def _is_affordable(self, operations: int) -> bool:
        """Return whether a replay of as many is within the limit, and if so, count it."""
        if operations > self._operations_left:
            return False
        self._operations_left -= operations
        return True

    def combine(self, replays: Replays) -> None:
        """Replay with the best change and each of the next ones, within the limit of operations.
        Both together have to be better than each of them.
        """
        ranked = sorted(self._promising, key=lambda promising: -promising[1].saved_us)
        for second in ranked[1:_MOST_COMBINED]:
            both = ranked[0][0].joined(second[0])
            if both is None or ranked[0][1].after == second[1].after:
                continue
            # The two may contradict each other.
            with suppress(OutOfTime, UnusableInput):
                if self._is_affordable(replays.count_operations(both)):
                    self._replay(replays, both, ranked[0][1].after)

    def keep(
        self,
        replays: Replays,
        recomputed: Recomputation | None,
        compiler: Compiler | None,
        device: Device | None,
    ) -> None:
        """Replay without the fusions that compute values more than once, within the limit of
        operations: those that look best kept, first one at a time, then all at once.
        """
        orders: Orders = {}
        values = recomputed.values if recomputed is not None else ()
        names = [value.value.name for value in values if value.saved_ns][:_MOST_KEPT]
        groups = [(name,) for name in names[:_MOST_KEPT_ALONE]]
        for group in [*groups, *([tuple(names)] if len(names) > 1 else [])]:
            try:
                self._keep(replays, keep_candidate(group), group, compiler, device, orders)
            except UnusableInput as error:
                self.note(str(error))

    def _keep(
        self,
        replays: Replays,
        candidate: Candidate,
        values: tuple[str, ...],
        compiler: Compiler | None,
        device: Device | None,
        orders: Orders,
    ) -> None:
        if not self._is_affordable(replays.operations):
            return
        passes = ChangedPasses(self._module, candidate.changes, compiler, device)
        passes.context = replays.context
        candidate = replace(candidate, passes=frozenset(run.pass_name for run in passes.runs))
        is_elsewhere = passes.obstacle or passes.is_late or passes.runs[-1:] != replays.runs[-1:]
        if is_elsewhere or self._module.final is None or passes.unmatched_patterns():
            return
        if passes.runs not in orders and replays.makes_dump(passes.runs):
            orders[passes.runs] = ({}, passes.context, True)
        if not passes.find_orders(orders):
            self._disagreeing.append(candidate)
            self.note(_DISAGREES.format(" and ".join(sorted(candidate.passes))))
            return
        prediction = replays.predict(passes.changed().module)
        if not prediction.is_certain:
            return
        before, after = replays.final, prediction.figures
        suggestion = _suggestion(candidate, HowTried.REPLAYED, frozenset(), before, after)
        suggestion = replace(suggestion, keeps=values, why_not=why_not_better(before, after))
        if suggestion.why_not:
            self._rejected.append(suggestion)
        else:
            self._promising.append((candidate, suggestion))
            self._helpful.append(suggestion)

    def _replay(
        self,
        replays: Replays,
        candidate: Candidate,
        best: Figures | None = None,
        wider: Candidate | None = None,
    ) -> None:
        """Replay with a change, which is ignored if it is not better than ``best``. It may be part
        of a ``wider`` one that was replayed before.
        """
        replayed = replays.try_out(candidate, wider)
        if replayed is not None and candidate.changes.allowed:
            possible = candidate.allowing(replays.fused_pairs(replayed))
            if possible is not None and possible != candidate:
                self._replay(replays, possible, best, candidate)
                return
            replayed = replayed if possible is not None else None
        is_better = replayed is not None and _is_better(replays.final, replayed.figures)
        if replayed is not None and replayed.is_certain and is_better:
            agrees = replays.agrees(candidate)
            if agrees is None:
                replayed = replays.try_out(candidate)
            elif not agrees:
                self._disagreeing.append(candidate)
                self.note(_DISAGREES.format(" and ".join(sorted(candidate.passes))))
                return
        self._replayed.append(candidate)
        if replayed is None:
            self._in_vain.append(candidate)
            return
        if not replayed.is_certain:
            self._disagreeing.append(candidate)
            self.note(_COPIES.format(" and ".join(sorted(candidate.passes))))
            return
        if best is not None and not _is_better(best, replayed.figures):
            return
        why_not = why_not_better(replays.final, replayed.figures)
        if replays.changes_code(replayed):  # figures say nothing either way
            self._disagreeing.append(candidate)
            if not why_not:
                self.note(_OTHER_CODE)
            return
        if not replayed.is_time_certain:
            self.note(_ROUGH_TIMES)
        pairs = replays.fused_pairs(replayed) & self._wanted
        if pairs.isdisjoint(candidate.pairs):
            self._in_vain.append(candidate)
        suggestion = _suggestion(
            candidate, HowTried.REPLAYED, pairs, replays.final, replayed.figures
        )
        if why_not:
            self._rejected.append(replace(suggestion, why_not=why_not))
        else:
            suggestion = replace(suggestion, removes=replays.removed_movements(replayed))
            self._promising.append((candidate, suggestion))
            self._helpful.append(suggestion)

    def compile(self, more: Sequence[Candidate]) -> None:
        """Compile with the changes that help in a replay, and with flags that cannot be replayed.

        The results of compilation replace those of the replay. Without a compilation, a replay
        alone is not sufficient for a CPU.
        """
        has_model = self._module.backend != "cpu"
        replayed, self._helpful = self._helpful, []
        if self._compilation is not None:
            problem = "" if has_model else why_not_run(self._module)
            try:
                if not problem:
                    self._compile(more, replayed, has_model=has_model)
                    return
                self.note(_NOT_TIMED.format(problem))
            except UnusableInput as error:
                self.note(_NOT_COMPILED.format(error))
        (self._helpful if has_model else self._unmeasured).extend(replayed)

    def _compile(
        self, more: Sequence[Candidate], suggestions: Sequence[Suggestion], *, has_model: bool
    ) -> None:
        from fusionscope.advise.compilations import compile_each, compile_unchanged

        assert self._compilation is not None
        flags = [attempt for attempt in more if attempt.kind is SuggestionKind.FLAG]
        ranked = sorted(self._promising, key=lambda attempt: -attempt[1].saved_us)
        candidates = [*(attempt for attempt, _ in ranked), *self._disagreeing, *flags]
        if not has_model:
            # A replay says little about time: flags are timed whatever it says.
            replayed = [
                attempt for attempt in self._replayed if attempt.kind is SuggestionKind.FLAG
            ]
            turns = chain.from_iterable(zip_longest([*flags, *replayed], candidates))
            unique = {turn.change: turn for turn in filter(None, turns)}
            candidates = list(unique.values())[:_MOST_COMPILED]
        self._progress(f"compiling with each of {len(candidates)} changes")
        unchanged = compile_unchanged(self._module, self._compilation)
        compiled = compile_each(self._module, candidates, self._compilation)
        self._notes.clear()  # about failed replays
        changes = {attempt.candidate.change for attempt in compiled}
        self._rejected = [attempt for attempt in self._rejected if attempt.change not in changes]
        if not has_model:
            self._unmeasured += [
                attempt for attempt in suggestions if attempt.change not in changes
            ]
        for attempt in compiled:
            if attempt.figures is None or attempt.problem:  # such as a flag that this version lacks
                continue
            before = unchanged.beside(attempt.candidate)
            if attempt.figures == before:
                self._in_vain.append(attempt.candidate)
                continue
            then, now, how = before, attempt.figures, HowTried.COMPILED
            why_not = why_not_better(then, now, self._module.backend)
            if attempt.timing is not None:
                then = replace(then, time_us=attempt.timing.baseline_ns / 1_000)
                now = replace(now, time_us=attempt.timing.variant_ns / 1_000)
                how, why_not = (
                    HowTried.MEASURED,
                    _why_not_faster(attempt.timing.verdict, attempt.timing.noise),
                )
            elif not has_model and not why_not and attempt.changes_code:
                self.note(_OTHER_CODE)
                continue
            pairs = (attempt.pairs - unchanged.pairs) & self._wanted
            suggestion = _suggestion(attempt.candidate, how, pairs, then, now)
            if why_not:
                self._rejected.append(replace(suggestion, why_not=why_not))
            elif has_model or attempt.timing is not None:
                self._helpful.append(replace(suggestion, removes=attempt.removes))
            else:
                self._unmeasured.append(suggestion)

    def apply_recipes(self, regions: Compilation | None, figures: Figures) -> None:
        """Add the recipes that match, and whether they help. The module has these ``figures``."""
        module, refused, compilation = self._module, self._refused, self._compilation
        self._progress("matching recipes")
        try:
            offers = find_offers(module)
            if compilation is None:
                left = self._try_regions(offers, regions, figures)
                self._untried_recipes.extend(untried(left, refused, figures))
                return
            self._progress(f"compiling with each of {len(offers)} recipes")
            compiled, problems = by_compiler(module, offers, refused, compilation)
        except UnusableInput as error:
            if compilation is not None:
                self.note(f"no recipe can be tried: {error}")
            return
        for attempt in compiled:
            suggestion = attempt.suggestion
            if attempt.race is not None:
                why_not = _why_not_faster(attempt.race.verdict, attempt.race.noise)
            else:
                why_not = why_not_better(suggestion.before, suggestion.after, module.backend)
            if why_not:
                self._rejected.append(replace(suggestion, pairs=(), why_not=why_not))
            elif attempt.race is None and module.backend == "cpu":
                self._unmeasured.append(suggestion)
            else:
                self._helpful.append(suggestion)
        for problem in problems:
            self.note(problem)
        self._progress("compiling with several changes")
        self._best_set = find_together(
            merged(self._helpful),
            lambda changes: try_together(module, changes, compilation),
            module.backend,
        )

    def _try_regions(
        self, recipes: Sequence[Offer], regions: Compilation | None, figures: Figures
    ) -> Sequence[Offer]:
        """Return the recipes that were not tried. The flag for split products is tried, too."""
        if regions is None or self._module.backend not in ("gpu", "tpu"):
            return recipes
        flags: list[FlagOffer] = []
        with suppress(UnusableInput):
            flags = find_flag_offers(self._module)
        most = None if isinf(self._operations_left) else MOST_COMPILED
        trial = RegionTrial(self._module, figures, regions, most, beside=list(self._helpful))
        self._progress(f"compiling what {len(recipes) + len(flags)} changes concern")
        try:
            for suggestion in trial.run([*recipes, *flags], self._refused):
                why_not = suggestion.why_not or why_not_better(
                    suggestion.before, suggestion.after, self._module.backend
                )
                if why_not:
                    self._rejected.append(replace(suggestion, pairs=(), why_not=why_not))
                else:
                    self._helpful.append(suggestion)
        except UnusableInput as error:
            kinds = [kind for kind, offers in (("recipe", recipes), ("flag", flags)) if offers]
            problem = str(error).replace(sys.executable, "this Python")
            self.note(f"no {' or '.join(kinds)} was tried: {problem}")
            return recipes
        self._best_set = trial.together
        return [offer for offer in trial.untried if isinstance(offer, Offer)]


def _why(id: str) -> str:
    page = read_page(id)
    return page.why or page.title


def _suggestion(
    candidate: Candidate,
    evidence: HowTried,
    pairs: frozenset[tuple[str, str]],
    before: Figures,
    after: Figures,
) -> Suggestion:
    return Suggestion(
        number=0,
        kind=candidate.kind,
        change=candidate.change,
        evidence=evidence,
        pairs=tuple(sorted(pairs)),
        before=before,
        after=after,
    )


def _why_not_rerun(module: DumpedModule) -> str:
    """Return why ``rerun`` cannot compile a module again; nothing if it can."""
    try:
        find_program(module)
        find_target(module)
        require_final(module)
    except UnusableInput as error:
        return str(error)
    return ""


def _figures(totals: Summary) -> Figures:
    time = totals.time.microseconds if totals.time is not None else None
    return Figures(totals.launches, totals.bytes_moved, time)


def _is_better(before: Figures, after: Figures) -> bool:
    return not why_not_better(before, after)


def _why_not_faster(verdict: Speed, noise: Ratio) -> str:
    """Return why a change is not worth it by a measurement; nothing if it is faster."""
    if verdict is Speed.FASTER:
        return ""
    if verdict is Speed.SLOWER:
        return "it is slower"
    return f"equal programs differ as much here: {noise.low:.2f} to {noise.high:.2f} of the time"
