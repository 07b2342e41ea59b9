"""The rules for TPUs decide what their examples say, and so does the compiler."""

import json
from pathlib import Path

import pytest

from fusionscope.history.outcomes import pairs_after
from fusionscope.hlo import parse
from fusionscope.passes.tpu.accuracy import accuracy_of
from fusionscope.passes.tpu.pair import TpuPairs
from fusionscope.passes.tpu.rules import TPU_RULES, TpuRule, refusing
from fusionscope.rules.examples import Example
from fusionscope.rules.pages import read_examples

EXAMPLES = [(rule, example) for rule in TPU_RULES for example in read_examples(rule.id)]
NAMES = [f"{rule.id}: {example.why}" for rule, example in EXAMPLES]
# What libtpu 0.0.50.1 does (python -m conformance tpu_examples).
ANSWERS = json.loads(Path(__file__).with_name("tpu_answers.json").read_text())


@pytest.mark.parametrize(("rule", "example"), EXAMPLES, ids=NAMES)
def test_a_rule_decides_what_its_examples_say(rule: TpuRule, example: Example) -> None:
    module = parse(example.text)
    pair = next(
        pair
        for pair in pairs_after(module, module)
        if (pair.producer.name, pair.consumer.name) == (example.producer, example.consumer)
    )
    actual = refusing(TpuPairs().of(pair))
    assert actual is (rule if example.is_decided else None)


@pytest.mark.parametrize(("rule", "example"), EXAMPLES, ids=NAMES)
def test_the_compiler_does_what_the_examples_say(rule: TpuRule, example: Example) -> None:
    answers = ANSWERS[f"{rule.id}: {example.why}"]
    assert len(answers) == 4
    assert set(answers.values()) == {"not-fused" if example.is_decided else "fused"}


@pytest.mark.parametrize("rule", TPU_RULES, ids=lambda rule: rule.id)
def test_every_rule_has_an_example_of_either_kind(rule: TpuRule) -> None:
    assert {example.is_decided for example in read_examples(rule.id)} == {True, False}


@pytest.mark.parametrize("rule", TPU_RULES, ids=lambda rule: rule.id)
def test_every_rule_was_right_often_enough_on_most_devices(rule: TpuRule) -> None:
    counts = [accuracy_of(rule.id, device) for device in ("v4", "v5e", "v5p", "v6e")]
    assert sum(item is not None and item.is_enough for item in counts) >= 3
