"""Finds the best changes to take together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusionscope.advise.worth import why_not_better
from fusionscope.facts.suggestions import (
    Exclusion,
    Figures,
    HowTried,
    Step,
    Suggestion,
    SuggestionKind,
    Together,
    by_gain,
)

MOST = 8  # changes, those that save most
NOT_TRIED = "not tried with them"
EXCLUDED = "excluded by them: after their edits, it fits nowhere"
ADDS_NOTHING = "adds nothing to them"

# What came of several changes at once, and how it was found, or why there is no such.
Result = tuple[Figures, HowTried] | str
TryTogether = Callable[[Sequence[Suggestion]], Result]


def find_together(
    suggestions: Sequence[Suggestion], try_together: TryTogether, backend: str | None
) -> Together | None:
    """Return the best of ``suggestions`` together: the one that saves most, then each that adds to
    those before. None if these are not two, or save no more than one alone. Changes of rules are
    for the program as it is, and left out. What adds is judged as one change for ``backend`` is.
    """

    def why_not_added(before: Figures, after: Figures, evidence: HowTried) -> str:
        is_measured = evidence is HowTried.MEASURED
        return why_not_better(before, after, backend, is_measured=is_measured)

    ranked = sorted(suggestions, key=by_gain)
    flags_and_recipes = [
        change
        for change in ranked
        if change.evidence is not HowTried.UNTRIED and change.kind is not SuggestionKind.RULE
    ]
    if len(flags_and_recipes) < 2:
        return None
    first, *candidates = flags_and_recipes[:MOST]
    members, after, evidence = [first], first.after, first.evidence
    steps = [Step(change=first.change, after=first.after)]
    excluded = []
    for change in candidates:
        result = try_together([*members, change])
        if isinstance(result, str) or why_not_added(after, *result):
            why = result if isinstance(result, str) else ADDS_NOTHING
            excluded.append(Exclusion(change=change.change, why=why))
            continue
        members.append(change)
        after, evidence = result
        steps.append(Step(change=change.change, after=after))
    if len(steps) < 2 or why_not_added(ranked[0].after, after, evidence):
        return None
    return Together(
        before=first.before, steps=tuple(steps), excluded=tuple(excluded), evidence=evidence
    )
