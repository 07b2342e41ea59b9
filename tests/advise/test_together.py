"""The best changes together: the one that saves most, then what adds to it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fusionscope.advise.together import NOT_TRIED, Result, find_together
from fusionscope.facts.suggestions import Figures, HowTried, Suggestion, SuggestionKind

BEFORE = Figures(launches=10, bytes_moved=1_000, time_us=100.0)


def change(name: str, time_us: float, kind: SuggestionKind = SuggestionKind.RECIPE) -> Suggestion:
    after = Figures(launches=9, bytes_moved=900, time_us=time_us)
    return Suggestion(
        number=0,
        kind=kind,
        change=name,
        evidence=HowTried.REGION,
        pairs=(),
        before=BEFORE,
        after=after,
    )


def sums(changes: Sequence[Suggestion]) -> tuple[Figures, HowTried]:
    """Changes of regions that have nothing in common."""
    saved = sum(member.saved_us for member in changes)
    return Figures(launches=8, bytes_moved=800, time_us=100.0 - saved), HowTried.REGION


def least(changes: Sequence[Suggestion]) -> tuple[Figures, HowTried]:
    """Changes of which the best already does what the others do."""
    time = min(member.after.time_us or 0.0 for member in changes)
    return Figures(launches=9, bytes_moved=900, time_us=time), HowTried.REGION


def test_what_saves_most_comes_first_and_what_adds_to_it_follows() -> None:
    together = find_together([change("a", 90), change("b", 60), change("c", 80)], sums, "gpu")
    assert together is not None
    assert [(step.change, step.after.time_us) for step in together.steps] == [
        ("b", 60),
        ("c", 40),
        ("a", 30),
    ]
    assert together.before == BEFORE and together.after.time_us == 30
    assert not together.excluded


def test_what_adds_nothing_leaves_one_change_and_so_no_set() -> None:
    assert find_together([change("a", 90), change("b", 60)], least, "gpu") is None


def test_what_cannot_be_tried_with_the_others_is_named() -> None:
    def without_c(changes: Sequence[Suggestion]) -> Result:
        return NOT_TRIED if any(member.change == "c" for member in changes) else sums(changes)

    together = find_together([change("a", 90), change("b", 60), change("c", 80)], without_c, "gpu")
    assert together is not None
    assert [step.change for step in together.steps] == ["b", "a"]
    assert [(left.change, left.why) for left in together.excluded] == [("c", "not tried with them")]


@pytest.mark.parametrize("kind", [SuggestionKind.RULE])
def test_changes_of_rules_are_for_the_program_as_it_is(kind: SuggestionKind) -> None:
    assert find_together([change("a", 90), change("b", 60, kind)], sums, "gpu") is None


def test_a_rule_that_alone_saves_more_leaves_no_set() -> None:
    changes = [change("a", 95), change("b", 96), change("rule", 50, SuggestionKind.RULE)]
    assert find_together(changes, sums, "gpu") is None


def test_what_adds_launches_and_bytes_is_added_where_the_compiler_prices_its_code() -> None:
    def longer_code(changes: Sequence[Suggestion]) -> Result:
        saved = sum(member.saved_us for member in changes)
        return Figures(launches=11, bytes_moved=1_100, time_us=100.0 - saved), HowTried.COMPILED

    changes = [change("a", 90), change("b", 60)]
    together = find_together(changes, longer_code, "tpu")
    assert together is not None and [step.change for step in together.steps] == ["b", "a"]
    assert find_together(changes, longer_code, "gpu") is None
