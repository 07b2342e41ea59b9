"""Reasons by rules that need not be the compiler's are guesses, and told as such everywhere."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from sample_kinds import all_samples

from fusionscope import UnusableInput
from fusionscope.cli.main import cli
from fusionscope.dump import open_dump
from fusionscope.explain import Selection, explain
from fusionscope.reasons.replayed import replay_passes
from fusionscope.verify.rules_used import sum_up
from fusionscope.verify.verification import verify
from fusionscope.versions.choice import choose_compiler

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
# Both have rules, but lose the stages that show their version.
DUMPS = ROOT / "tests" / "versions" / "dumps"
CPU, H100 = DUMPS / "cpu-jaxlib-0.6" / "softmax", DUMPS / "h100-jaxlib-0.4.38" / "dense"
UNKNOWN = [CPU, H100]
SHOWN = re.compile(
    r".*\.\d{4}\.(?!((HLO_passes_|simplification_)?after_layout|hlo_normalization|fusion)).*"
)

# The passes that explain replays.
DECIDING = {
    "cpu": {"dot-library-rewriter", "fusion"},
    "gpu": {"triton-gemm-rewriter", "priority-fusion"},
}
OLDER = {"fusion", "fusion-duplicating", "fusion_merger"}


def facts_of(path, **selection):
    (module,) = (module for module in explain(open_dump(path), Selection(**selection)).modules[:1])
    return module


def evidence_of(module):
    return {pair.evidence for pair in module.pairs if pair.reason not in (None, "unknown")}


def without_record(path, tmp_path):
    def records(_, names):
        return [name for name in names if "._fusion." in name or "priority_fusion_dump" in name]

    dump = shutil.copytree(path, tmp_path / "dump", ignore=records)
    return without_version(dump) if path in UNKNOWN else dump


def without_version(dump):
    for stage in dump.iterdir():
        if SHOWN.fullmatch(stage.name):
            stage.unlink()
    return dump


def name(path):
    return f"{path.parent.name}/{path.name}"


@pytest.mark.parametrize("path", [*all_samples(), *UNKNOWN])
def test_explain_and_verify_agree_on_how_far_the_rules_agree(path, samples):
    dump = samples.dump(path)
    try:
        verified = {module.number: module for module in verify(dump, dump.modules).modules}
    except UnusableInput:
        assert path.parent.name.startswith("tpu")
        return
    for module in dump.modules:
        replayed = replay_passes(module) if module.number in verified else None
        if replayed is None or replayed.rules is None:
            assert module.number not in verified or "without-fusion" in path.parent.name
            continue
        actual = verified[module.number]
        deciding = DECIDING[module.backend]
        choice = choose_compiler(module)
        if module.backend == "gpu" and not choice.compiler.has_priority_fusion:
            deciding = OLDER
        passes = [fusion_pass for fusion_pass in actual.passes if fusion_pass.pass_name in deciding]
        plans = [(fusion_pass.pass_name, fusion_pass.has_same_kernels) for fusion_pass in passes]
        assert replayed.rules == sum_up(choice, plans)


@pytest.mark.parametrize("path", all_samples())
def test_of_versions_with_rules_nothing_is_a_guess(path, samples):
    for module in samples.explanation(path).modules:
        assert module.rules is None or (module.rules.are_checked and not module.rules.guessed)
        assert "guess" not in evidence_of(module)


@pytest.mark.parametrize("path", UNKNOWN, ids=name)
def test_of_a_version_without_rules_all_is_a_guess(path, tmp_path):
    module = facts_of(without_record(path, tmp_path))
    assert not module.rules.are_checked
    assert evidence_of(module) == {"guess"}


def test_what_is_recorded_is_no_guess(tmp_path):
    module = facts_of(without_version(shutil.copytree(CPU, tmp_path / "dump")))
    assert not module.rules.are_checked
    assert evidence_of(module) <= {"recorded", "agree", "disagree"}


@pytest.mark.parametrize("path", UNKNOWN, ids=name)
def test_guesses_change_no_outcome(path, tmp_path):
    guessed, recorded = facts_of(without_record(path, tmp_path)), facts_of(path)
    assert [pair.outcome for pair in guessed.pairs] == [pair.outcome for pair in recorded.pairs]


def test_the_rules_of_another_version_are_guesses():
    path = ROOT / "samples" / "dumps" / "cpu" / "softmax"
    module = facts_of(path, rules="cpu-0.10")
    assert module.rules.name == "cpu-0.10"
    assert module.rules.version == "jaxlib 0.12"
    assert evidence_of(module) == {"guess"}
    assert evidence_of(facts_of(path, rules="cpu-0.12")) == {"re-evaluated"}


def test_a_pass_that_the_chosen_rules_lack_is_left_out():
    module = facts_of(DUMPS / "cpu-jaxlib-0.9.2" / "reductions", rules="cpu-0.6.2")
    assert (module.rules.name, module.rules.are_checked) == ("cpu-0.6.2", False)
    assert module.rules.guessed == ("fusion",)


def test_a_plan_that_differs_makes_the_reasons_of_its_pass_guesses(tmp_path):
    """What the fusion pass made is taken for what the pass before it made: its plan is another."""
    source = ROOT / "samples" / "dumps" / "cpu" / "elementwise"
    path = shutil.copytree(source, tmp_path / "dump")
    (fused,) = path.glob("*.after_fusion.*")
    before = next(
        item
        for item in sorted(path.iterdir())
        if item.name.split(".")[2] == str(int(fused.name.split(".")[2]) - 1).zfill(4)
    )
    shutil.copy(before, fused)
    module = facts_of(path)
    assert module.rules.are_checked
    assert module.rules.guessed == ("fusion",)
    assert evidence_of(module) == {"guess"}


def run(*arguments):
    """What a command prints."""
    result = CliRunner().invoke(cli, [*map(str, arguments)], standalone_mode=False)
    return result.stdout


def test_every_report_says_so(tmp_path):
    dump = without_record(CPU, tmp_path)
    for format_name in ("text", "markdown"):
        output = run("explain", dump, "--format", format_name)
        assert "an unknown version of jaxlib" in output
        assert "is a guess" in " ".join(output.split())
        assert "(guess)" in output
    (module,) = json.loads(run("explain", dump, "--format", "json"))["modules"]
    assert module["rules"]["checked"] is False
    assert module["rules"]["guessed"] == ["fusion"]
    assert {pair["evidence"] for pair in module["pairs"]} == {None, "guess"}
    attempts = run("explain", dump, "--disable", "cpu-expensive-reuse", "--format", "json")
    assert json.loads(attempts)["modules"][0]["what_if"]["guess"] is True
    actual = json.loads(run("verify", dump, "--format", "json"))
    assert actual["modules"][0]["rules"]["checked"] is False
    assert "is a guess" in " ".join(run("verify", dump).split())


def test_check_and_diff_mark_guesses(tmp_path):
    dump = without_record(CPU, tmp_path)
    expected = tmp_path / "expected.toml"
    expected.write_text('[[expect]]\nfused = "exponential -> reduce-window"\n')
    actual = run("check", dump, "--expect", expected)
    assert "(a guess: cpu-expensive-reuse" in " ".join(actual.split())
    assert "is a guess" in actual
    report = json.loads(run("check", dump, "--expect", expected, "--format", "json"))
    assert report["rules"][0]["checked"] is False
    (violation,) = report["expectations"][0]["violations"]
    assert violation["evidence"] == "guess"
    markdown = run("check", dump, "--expect", expected, "--format", "markdown")
    assert "a guess: cpu-expensive-reuse" in markdown
    newer = ROOT / "samples" / "dumps" / "cpu" / "softmax"
    difference = " ".join(run("diff", dump, newer).split())
    assert "before: a guess: cpu-expensive-reuse" in difference
    assert "is a guess" in difference
