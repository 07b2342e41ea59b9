"""Every rule of priority fusion decides what its examples say on an H100, and leaves the rest."""

from __future__ import annotations

import pytest
from conformance.examples import GPU_EXAMPLES, ONLY_HERE, check_gpu

from fusionscope.passes.gpu.priority_fusion.rules import GPU_FUSION
from fusionscope.passes.inplace import IN_PLACE_RULES
from fusionscope.rules.examples import Example
from fusionscope.rules.pages import read_examples

# What it refuses is asked again of the other emitters.
NEVER_LAST = {"tri-heroless"}


@pytest.mark.parametrize(
    ("id", "example"), GPU_EXAMPLES, ids=[f"{i}: {e.why}" for i, e in GPU_EXAMPLES]
)
def test_a_rule_decides_what_its_examples_say(id: str, example: Example) -> None:
    check_gpu(id, example)


@pytest.mark.parametrize("id", [item.id for item in GPU_FUSION if item not in IN_PLACE_RULES])
def test_every_rule_has_an_example_of_either_kind(id: str) -> None:
    kinds = {example.is_decided for example in read_examples(id)}
    assert kinds == ({False} if id in NEVER_LAST else {True, False})


@pytest.mark.parametrize("example", read_examples(ONLY_HERE, "on GPUs"), ids=lambda e: e.why)
def test_what_no_cpu_comes_to_is_decided_here(example: Example) -> None:
    check_gpu(ONLY_HERE, example)
