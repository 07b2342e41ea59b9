from fusionscope.dump.reasons import RULE_IDS
from fusionscope.explain.advice import RULE_TEXTS


def test_every_rule_that_gives_a_reason_has_a_text():
    assert set(RULE_TEXTS) >= RULE_IDS


def test_titles_are_short():
    for rule, text in RULE_TEXTS.items():
        assert 1 <= len(text.title.split()) <= 8, rule


def test_rules_that_keep_results_right_have_no_advice():
    for rule, text in RULE_TEXTS.items():
        if rule.startswith("inplace-") or rule in ("base-root", "pf-root", "mof-connected"):
            assert text.advice is None, rule


def test_advice_about_a_rule_names_that_rule():
    for rule, text in RULE_TEXTS.items():
        for option in ("--set ", "--disable "):
            if text.advice and option in text.advice:
                named = text.advice.partition(option)[2].split()[0]
                assert named in (rule, f"{rule}.limit=N")
