"""Which changes help, found by trying them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from fusionscope.advise.candidates import Candidate, flag_candidates, rule_candidates
from fusionscope.advise.recipes.trying import (
    Compilation,
    by_compiler,
    by_example,
    find_offers,
)
from fusionscope.advise.replays import Replays
from fusionscope.dump import DumpedModule
from fusionscope.dump.device import Device
from fusionscope.errors import UnusableInput
from fusionscope.explain.result import ModuleFacts, PairFacts
from fusionscope.explain.selection import Selection
from fusionscope.explain.suggestion import Figures, HowTried, Suggestion, Suggestions
from fusionscope.explain.summary import group_alike
from fusionscope.history.outcomes import Outcome
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.known import compiler_named

MOST_REFUSALS = 20  # kinds of refusals of which levers are tried
_LEAST_GAIN = 0.001  # of the time of a module: less is nothing
_LEAST_SECONDS = 1.0  # for trying, however short the explanation took

_NOT_REPLAYED = "no change can be tried by replaying the fusion passes: {}"
_DISAGREES = (
    "the replay of {} does not make the kernels that are in the dump, so its changes cannot be "
    "tried by replaying"
)


def suggester(
    selection: Selection, *, is_limited: bool = True, compilation: Compilation | None = None
) -> Callable[[DumpedModule, ModuleFacts, float], Suggestions]:
    """What ``explain`` asks about each module: it tries no longer than the explanation took, unless
    ``is_limited`` is false. Raises ``UnusableInput`` where no rules have the name in
    ``selection``."""
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
    """Tries what could help ``module``, of which ``facts`` is the explanation.

    ``seconds`` of processor time are spent at most on replays, at least one; None is no limit.
    ``compiler`` and ``device`` are those to replay, those of the dump where None. With a
    ``compilation``, recipes are tried by the compiler.
    """
    refused = [pair for pair in facts.pairs if pair.outcome == Outcome.NOT_FUSED]
    replayed = Suggestions()
    if refused:
        replayed = _suggest_by_replay(module, refused, seconds, compiler, device)
    return _add_recipes(replayed, module, refused, compilation)


def _add_recipes(
    found: Suggestions,
    module: DumpedModule,
    refused: Sequence[PairFacts],
    compilation: Compilation | None,
) -> Suggestions:
    """``found``, and the recipes that fit: those that were only tried on their own example are
    last."""
    try:
        offers = find_offers(module)
        if compilation is None:
            numbers = count(1 + len(found.helpful))
            examples = by_example(module, offers, refused)
            last = [replace(each, number=next(numbers)) for each in examples]
            rejected = _ranked(found.rejected, next(numbers))
            return replace(found, helpful=(*found.helpful, *last), rejected=rejected)
        compiled, problems = by_compiler(module, offers, refused, compilation)
    except UnusableInput as error:
        notes = (f"no recipe can be tried: {error}",) if compilation is not None else ()
        return replace(found, notes=(*found.notes, *notes))
    helping, others = [*found.helpful], [*found.rejected]
    for each in compiled:
        suggestion = each.suggestion
        helps = each.is_faster
        if helps is None:
            helps = _is_better(suggestion.before, suggestion.after)
        if helps:
            helping.append(suggestion)
        else:
            others.append(replace(suggestion, pairs=()))
    return replace(
        found,
        helpful=_ranked(helping, 1),
        rejected=_ranked(others, 1 + len(helping)),
        notes=(*found.notes, *problems),
    )


def _suggest_by_replay(
    module: DumpedModule,
    refused: Sequence[PairFacts],
    seconds: float | None,
    compiler: Compiler | None,
    device: Device | None,
) -> Suggestions:
    try:
        replays = Replays(module, module.read(module.final or module.stages[-1]), compiler, device)
        candidates = [
            each for each in _candidates(module, replays.compiler, refused) if replays.can_try(each)
        ]
    except UnusableInput as error:
        return Suggestions(notes=(_NOT_REPLAYED.format(error),))
    return _try_all(replays, candidates, refused, seconds)


def _candidates(
    module: DumpedModule, compiler: Compiler, refused: Sequence[PairFacts]
) -> Iterator[Candidate]:
    """Each once: flags, then what changes rules, by the bytes that these refused."""
    seen = set()
    groups = group_alike(refused, lambda pair: pair.reason)[:MOST_REFUSALS]
    rules = (each for alike in groups for each in rule_candidates(compiler, alike))
    for each in (*flag_candidates(module), *rules):
        if each.change not in seen:
            seen.add(each.change)
            yield each


def _try_all(
    replays: Replays,
    candidates: Sequence[Candidate],
    refused: Sequence[PairFacts],
    seconds: float | None,
) -> Suggestions:
    wanted = {(pair.producer.name, pair.consumer.name) for pair in refused}
    end = None if seconds is None else time.process_time() + max(seconds, _LEAST_SECONDS)
    helpful: list[Suggestion] = []
    rejected: list[Suggestion] = []
    notes: dict[str, None] = {}
    untried = 0
    for candidate in candidates:
        if end is not None and time.process_time() > end:
            untried += 1
            continue
        try:
            tried = replays.try_out(candidate)
            if tried is not None and _is_better(replays.final, tried.figures):
                agrees = replays.agrees(candidate)
                if agrees is None:
                    tried = replays.try_out(candidate)
                elif not agrees:
                    notes.setdefault(_DISAGREES.format(" and ".join(sorted(candidate.passes))))
                    continue
        except UnusableInput as error:
            notes.setdefault(str(error))
            continue
        if tried is None:
            continue
        is_better = _is_better(replays.final, tried.figures)
        pairs = sorted(replays.fused_pairs(tried) & wanted) if is_better else []
        found = Suggestion(
            number=0,
            kind=candidate.kind,
            change=candidate.change,
            evidence=HowTried.REPLAYED,
            pairs=tuple(pairs),
            before=replays.final,
            after=tried.figures,
        )
        (helpful if pairs else rejected).append(found)
    return Suggestions(
        helpful=_ranked(_merged(helpful), 1),
        rejected=_ranked(rejected, 1 + len(helpful)),
        untried=untried,
        notes=tuple(notes),
    )


def _is_better(before: Figures, after: Figures) -> bool:
    """Whether less time is estimated, noticeably, and not for more launches that move more bytes;
    where no time is known, whether there are fewer of one and no more of the other."""
    one = (before.launches, before.bytes_moved)
    other = (after.launches, after.bytes_moved)
    if before.time_us is None or after.time_us is None:
        return one != other and all(new <= old for old, new in zip(one, other, strict=True))
    is_more = one != other and all(new >= old for old, new in zip(one, other, strict=True))
    return not is_more and after.time_us < before.time_us * (1 - _LEAST_GAIN)


def _merged(found: Iterable[Suggestion]) -> list[Suggestion]:
    """Of changes that lead to the same the first: fewer pairs by name are no other suggestion."""
    merged: dict[tuple[object, ...], Suggestion] = {}
    for each in found:
        merged.setdefault((each.kind, each.after, each.pairs), each)
    return list(merged.values())


def _ranked(found: Iterable[Suggestion], first: int) -> tuple[Suggestion, ...]:
    """Those that save most time first, then most bytes, then most launches."""
    ranked = sorted(
        found, key=lambda each: (-each.saved_us, -each.saved_bytes, -each.saved_launches)
    )
    return tuple(replace(each, number=first + place) for place, each in enumerate(ranked))
