"""A rule is a value: nothing can be set on it, and it equals another with the same thresholds."""

from dataclasses import replace
from itertools import chain

import pytest

from fusionscope.versions.known import all_compilers

RULES = {rule: None for compiler in all_compilers() for rule in chain(*compiler.books)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__qualname__)
def test_a_rule_is_a_value(rule):
    for name in (*rule.thresholds, "id", "another"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(rule, name, 1)
    assert not hasattr(rule, "__dict__")
    assert replace(rule) == rule and hash(replace(rule)) == hash(rule)
    assert [item for item in RULES if item == rule] == [rule]
