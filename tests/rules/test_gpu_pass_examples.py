"""Every rule of the passes around priority fusion decides what its examples say on an H100."""

from __future__ import annotations

import pytest
from gpu_pass_examples import CASES, ELSEWHERE, RULES, check

from fusionscope.rules.examples import Example, read_examples

NEVER_LAST = ("sm-root-producer", "leg-pc-mof")  # other rules refuse all of it before


@pytest.mark.parametrize(("id", "example"), CASES, ids=[f"{i}: {e.why}" for i, e in CASES])
def test_a_rule_decides_what_its_examples_say(id: str, example: Example) -> None:
    check(id, example)


@pytest.mark.parametrize("id", [id for id in RULES if id not in ELSEWHERE])
def test_every_rule_has_an_example_of_either_kind(id: str) -> None:
    kinds = {example.is_decided for example in read_examples(id)}
    assert kinds == (set() if id in NEVER_LAST else {True, False})
