from fusionscope.reasons.titles import title_of
from fusionscope.rules.messages import rule_ids


def test_every_rule_that_gives_a_reason_has_a_short_title():
    for reason in rule_ids():
        title = title_of(reason)
        assert title is not None, reason
        assert 1 <= len(title.split()) <= 8, reason
    assert title_of("no-rule") is None
