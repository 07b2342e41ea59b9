"""Variables say what they hold: pronouns and participles have a budget that only falls."""

import pytest
from conformance.figures import pronouns, sources
from conformance.findings import ROOT

# At most so many variables of a folder are called `each`, `found` or the like.
BUDGET = {
}


@pytest.mark.parametrize("folder", BUDGET)
def test_no_more_variables_are_called_by_a_pronoun(folder):
    count, _ = pronouns(sources(ROOT / folder))
    assert count == BUDGET[folder], "lower the budget" if count < BUDGET[folder] else "more of them"


def test_each_folder_has_a_budget():
    folders = {"tools", "tests", *(f"fusionscope/{path.name}" for path in (ROOT / "fusionscope").iterdir() if path.is_dir())}
    assert folders - {"fusionscope/__pycache__"} == BUDGET.keys()
