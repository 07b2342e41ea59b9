"""What the text says beside a reason that a rule for TPUs gives."""

from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.explain.analyze_module import analyze_module
from fusionscope.findings.suggestions.sheet import NOTHING, for_refusal
from fusionscope.rules.pages import read_page

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"


@pytest.mark.parametrize("name", ["attention", "concatenate", "softmax"])
def test_what_a_page_advises_was_not_tried(name):
    facts = analyze_module(open_dump(DUMPS / "tpu-v5e" / name).modules[0]).facts
    inferred = [pair for pair in facts.pairs if pair.evidence == "inferred"]
    assert inferred
    for pair in inferred:
        lever = read_page(pair.reason).lever
        assert for_refusal(None, pair) == (f"not tried: {lever}" if lever else NOTHING)


def test_other_refusals_have_their_suggestions():
    facts = analyze_module(open_dump(DUMPS / "cpu" / "concatenate").modules[0]).facts
    refused = [pair for pair in facts.pairs if pair.outcome == "not-fused"]
    assert refused
    assert {for_refusal(None, pair) for pair in refused} == {""}
