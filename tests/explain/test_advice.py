from fusionscope.explain.advice import text_of
from fusionscope.rules.messages import rule_ids
from fusionscope.versions.known import all_rules

TEXTS = {reason: text_of(reason) for reason in rule_ids()}


def test_every_rule_that_gives_a_reason_has_a_text():
    assert [reason for reason, text in TEXTS.items() if text is None] == []
    assert text_of("no-rule") is None


def test_titles_are_short():
    for rule, text in TEXTS.items():
        assert 1 <= len(text.title.split()) <= 8, rule


def test_rules_that_keep_results_right_have_no_advice():
    for rule, text in TEXTS.items():
        if rule.startswith("inplace-") or rule in ("base-root", "pf-root", "mof-connected"):
            assert text.advice is None, rule


def test_advice_about_a_threshold_names_one_of_that_rule():
    thresholds = {
        f"{rule.id}.{name}=N" for rule in all_rules() for name in (*rule.thresholds, "NAME")
    }
    found = 0
    for rule, text in TEXTS.items():
        if text.advice and "--set " in text.advice:
            found += 1
            named = text.advice.partition("--set ")[2].split()[0]
            assert named in thresholds and named.startswith(f"{rule}."), rule
    assert found > 5
