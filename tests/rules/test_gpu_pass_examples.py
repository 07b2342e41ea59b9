"""Every rule of the passes around priority fusion decides what its examples say on an H100."""

from __future__ import annotations

import pytest
from conformance.examples import ELSEWHERE, PASS_EXAMPLES, PASS_RULES, check_pass, plan_of

from fusionscope.rules.examples import Example
from fusionscope.rules.pages import read_examples

NAMES = [f"{id}: {example.why}" for id, example in PASS_EXAMPLES]
NEVER_LAST = ("sm-root-producer", "leg-pc-mof")  # other rules refuse all of it before


@pytest.mark.parametrize(("id", "example"), PASS_EXAMPLES, ids=NAMES)
def test_a_rule_decides_what_its_examples_say(id: str, example: Example) -> None:
    check_pass(id, example)


@pytest.mark.parametrize("id", [id for id in PASS_RULES if id not in ELSEWHERE])
def test_every_rule_has_an_example_of_either_kind(id: str) -> None:
    kinds = {example.is_decided for example in read_examples(id)}
    assert kinds == (set() if id in NEVER_LAST else {True, False})


@pytest.mark.parametrize(("id", "example"), PASS_EXAMPLES, ids=NAMES)
def test_a_user_may_set_every_threshold_to_zero(id: str, example: Example) -> None:
    book = PASS_RULES[id][1]
    for name in book.find(id).thresholds:
        assert plan_of(id, example, book.with_threshold(id, name, 0)).graph is not None
