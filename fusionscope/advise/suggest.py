"""Finds changes that help by trying them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fusionscope.advise.candidates import Candidate, flag_candidates, rule_candidates
from fusionscope.advise.recipes.trying import Compilation, by_compiler, by_example, find_offers
from fusionscope.advise.replays import Replays
from fusionscope.dump import DumpedModule
from fusionscope.dump.device import Device
from fusionscope.errors import UnusableInput
from fusionscope.explain.result import ModuleFacts, PairFacts
from fusionscope.explain.selection import Selection
from fusionscope.explain.suggestion import (
    Figures,
    HowTried,
    Suggestion,
    SuggestionKind,
    Suggestions,
    by_gain,
    merged,
)
from fusionscope.explain.summary import group_alike
from fusionscope.history.outcomes import Outcome
from fusionscope.rerun.running import Speed
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.known import compiler_named

MOST_REFUSALS = 20  # kinds of refusals for which changes are tried
_LEAST_GAIN = 0.001  # of the time of a module: a smaller gain counts as none
_LEAST_SECONDS = 1.0  # for trying, however short the explanation took

_NOT_REPLAYED = "no change can be tried by replaying the fusion passes: {}"
_NOT_COMPILED = "no change can be compiled: {}"
_DISAGREES = (
    "the replay of {} does not make the kernels that are in the dump, so its changes cannot be "
    "tried by replaying: --compile"
)
_COPIES = (
    "changes of {} lead to other copies after fusion, whose costs cannot be predicted: --compile"
)


def suggester(
    selection: Selection, *, is_limited: bool = True, compilation: Compilation | None = None
) -> Callable[[DumpedModule, ModuleFacts, float], Suggestions]:
    """Return the function that ``explain`` calls for each module.

    It spends no more time than the explanation took, unless ``is_limited`` is false. With a
    ``compilation``, changes are also compiled, and timed if the device is present. Raises
    ``UnusableInput`` if no rules have the name in ``selection``.
    """
    compiler = compiler_named(selection.rules)

    def ask(module: DumpedModule, facts: ModuleFacts, seconds: float) -> Suggestions:
        device = selection.device if _lacks_device(module) else None
        limit = seconds if is_limited else None
        return suggest(
            module,
            facts,
            seconds=limit,
            compiler=compiler,
            device=device,
            compilation=compilation,
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
    seconds: float | None,
    compiler: Compiler | None = None,
    device: Device | None = None,
    compilation: Compilation | None = None,
) -> Suggestions:
    """Try changes that could help ``module``, which ``facts`` explain with all of its pairs.

    At most ``seconds`` of processor time are spent on replays, but at least one second; None means
    no limit. ``compiler`` and ``device`` are those to replay, by default those of the dump. With a
    ``compilation``, changes are also tried by the compiler.
    """
    refused = [pair for pair in facts.pairs if pair.outcome == Outcome.NOT_FUSED]
    refused.sort(key=lambda pair: -pair.bytes_saved)
    trial = _Trial(module, refused, compilation)
    if refused:
        try:
            final = module.read(module.final or module.stages[-1])
            replays = Replays(module, final, compiler, device)
            candidates = list(_candidates(module, replays.compiler, refused))
        except UnusableInput as error:
            trial.note(_NOT_REPLAYED.format(error))
        else:
            trial.replay(replays, list(filter(replays.can_try, candidates)), seconds)
            trial.compile([each for each in candidates if not replays.can_try(each)])
    trial.apply_recipes()
    return trial.suggestions()


def _candidates(
    module: DumpedModule, compiler: Compiler, refused: Sequence[PairFacts]
) -> Iterator[Candidate]:
    """Yield each candidate once: flags, then changes of rules, in the order of the bytes that these
    refused.
    """
    seen = set()
    groups = group_alike(refused, lambda pair: pair.reason)[:MOST_REFUSALS]
    rules = (each for alike in groups for each in rule_candidates(compiler, alike))
    for each in (*flag_candidates(module), *rules):
        if each.change not in seen:
            seen.add(each.change)
            yield each


class _Trial:
    """The changes that were tried on a module so far, with their results."""

    def __init__(
        self,
        module: DumpedModule,
        refused: Sequence[PairFacts],
        compilation: Compilation | None,
    ) -> None:
        self._module = module
        self._refused = refused
        self._wanted = frozenset((pair.producer.name, pair.consumer.name) for pair in refused)
        self._compilation = compilation
        self._promising: list[Candidate] = []
        self._disagreeing: list[Candidate] = []
        self._notes: dict[str, None] = {}
        self._untried = 0
        self._helpful: list[Suggestion] = []
        self._by_example: list[Suggestion] = []
        self._unmeasured: list[Suggestion] = []
        self._rejected: list[Suggestion] = []

    def note(self, problem: str) -> None:
        self._notes.setdefault(problem)

    def suggestions(self) -> Suggestions:
        """Return everything in order. Suggestions that were tried only on their own example come
        last.
        """
        return Suggestions(
            helpful=(*sorted(merged(self._helpful), key=by_gain), *self._by_example),
            unmeasured=tuple(sorted(merged(self._unmeasured), key=by_gain)),
            rejected=tuple(sorted(self._rejected, key=by_gain)),
            untried=self._untried,
            notes=tuple(self._notes),
        ).numbered()

    def replay(
        self, replays: Replays, candidates: Sequence[Candidate], seconds: float | None
    ) -> None:
        """Replay with each of ``candidates``, as long as there is time."""
        end = None if seconds is None else time.process_time() + max(seconds, _LEAST_SECONDS)
        for candidate in candidates:
            if end is not None and time.process_time() > end:
                self._untried += 1
                continue
            try:
                self._replay(replays, candidate)
            except UnusableInput as error:
                self.note(str(error))

    def _replay(self, replays: Replays, candidate: Candidate) -> None:
        tried = replays.try_out(candidate)
        if tried is not None and _is_better(replays.final, tried.figures):
            agrees = replays.agrees(candidate)
            if agrees is None:
                tried = replays.try_out(candidate)
            elif not agrees:
                self._disagreeing.append(candidate)
                self.note(_DISAGREES.format(" and ".join(sorted(candidate.passes))))
                return
        if tried is None:
            return
        if not tried.is_final:
            self._disagreeing.append(candidate)
            self.note(_COPIES.format(" and ".join(sorted(candidate.passes))))
            return
        is_better = _is_better(replays.final, tried.figures)
        pairs = replays.fused_pairs(tried) & self._wanted if is_better else frozenset()
        found = _suggestion(candidate, HowTried.REPLAYED, pairs, replays.final, tried.figures)
        if pairs:
            self._promising.append(candidate)
        (self._helpful if pairs else self._rejected).append(found)

    def compile(self, others: Sequence[Candidate]) -> None:
        """Compile with the changes that help in a replay, and with flags that cannot be replayed.

        The results of compilation replace those of the replay. Without a compilation, a replay
        alone is not sufficient for a CPU.
        """
        has_model = self._module.backend != "cpu"
        found, self._helpful = self._helpful, []
        if self._compilation is not None:
            try:
                self._compile(others, has_model=has_model)
                return
            except UnusableInput as error:
                self.note(_NOT_COMPILED.format(error))
        (self._helpful if has_model else self._unmeasured).extend(found)

    def _compile(self, others: Sequence[Candidate], *, has_model: bool) -> None:
        from fusionscope.advise.compilations import compile_each, compile_unchanged

        assert self._compilation is not None
        flags = [each for each in others if each.kind is SuggestionKind.FLAG]
        candidates = [*self._promising, *self._disagreeing, *flags]
        before = compile_unchanged(self._module, self._compilation)
        compiled = compile_each(self._module, candidates, self._compilation)
        self._notes.clear()  # about failed replays
        for each in compiled:
            if each.figures is None or each.problem:  # such as a flag that this version lacks
                continue
            then, now, how = before, each.figures, HowTried.COMPILED
            is_better = has_model and _is_better(then, now)
            if each.timing is not None:
                then = replace(then, time_us=each.timing.baseline_ns / 1_000)
                now = replace(now, time_us=each.timing.variant_ns / 1_000)
                how, is_better = HowTried.MEASURED, each.timing.verdict is Speed.FASTER
            pairs = each.pairs & self._wanted if is_better else frozenset()
            # If a flag changes the stages before fusion, there are no pairs to compare.
            helps = is_better and (pairs or _is_less(then, now))
            if then != now:
                found = _suggestion(each.candidate, how, pairs, then, now)
                (self._helpful if helps else self._rejected).append(found)

    def apply_recipes(self) -> None:
        """Add the recipes that match, and whether they help."""
        module, refused, compilation = self._module, self._refused, self._compilation
        try:
            offers = find_offers(module)
            if compilation is None:
                self._by_example.extend(by_example(module, offers, refused))
                return
            compiled, problems = by_compiler(module, offers, refused, compilation)
        except UnusableInput as error:
            if compilation is not None:
                self.note(f"no recipe can be tried: {error}")
            return
        for each in compiled:
            found, helps = each.suggestion, each.is_faster
            if helps is None:
                helps = _is_better(found.before, found.after)
            if helps:
                self._helpful.append(found)
            else:
                self._rejected.append(replace(found, pairs=()))
        for problem in problems:
            self.note(problem)


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


def _is_better(before: Figures, after: Figures) -> bool:
    """Return whether the estimated time is noticeably less, unless launches or bytes increase and
    neither decreases.

    If no time is known, return whether launches or bytes are fewer, and neither is more.
    """
    if before.time_us is None or after.time_us is None:
        return _is_less(before, after)
    is_faster = after.time_us < before.time_us * (1 - _LEAST_GAIN)
    return is_faster and not _is_less(after, before)


def _is_less(before: Figures, after: Figures) -> bool:
    """Return whether launches or bytes are fewer, and neither is more."""
    one = (before.launches, before.bytes_moved)
    other = (after.launches, after.bytes_moved)
    return one != other and all(new <= old for old, new in zip(one, other, strict=True))
