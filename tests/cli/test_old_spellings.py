"""Options of the last release still do what they did, and say what to write instead."""

import json

import pytest
from click.testing import CliRunner

from fusionscope.cli.main import COMMANDS, cli

GPU = "samples/dumps/h100/concatenate"
MOST_OPTIONS = {"explain": 20}
MOST_OF_OTHERS = 21  # rerun, which takes changes of rules, flags and recipes


def answer(*words: str) -> tuple[str, str]:
    result = CliRunner().invoke(cli, [*words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.stdout, result.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["explain", GPU, "--op", "slice"], ["explain", GPU, "--where", "op=slice"]),
        (
            ["explain", GPU, "--outcome", "fused", "--computation", "main*"],
            ["explain", GPU, "--where", "outcome=fused", "--where", "computation=main*"],
        ),
        (
            ["explain", GPU, "--by", "kind", "--sort", "bytes", "--depth", "1"],
            ["explain", GPU, "--by", "kind,bytes,1"],
        ),
        (
            ["explain", GPU, "--by", "scope", "--op-name", "*tanh*"],
            ["explain", GPU, "--by", "scope", "--where", "op-name=*tanh*"],
        ),
        (["explain", GPU, "--movements"], ["explain", GPU, "--show", "movements"]),
        (
            ["explain", GPU, "--kernel", "input*", "--format", "dot", "--radius", "0"],
            ["draw", GPU, "input*", "--format", "dot", "--radius", "0"],
        ),
    ],
)
def test_both_spellings_print_the_same(old, new, monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)
    was, note = answer(*old)
    now, errors = answer(*new)
    assert was == now
    assert was
    assert not errors
    assert note.startswith("fusionscope: note: the next release has no --")


def test_a_changed_rule_is_another_command(monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)
    change = ["--disable", "pf-negative", "--format", "json"]
    was, note = answer("explain", GPU, "--no-try", *change)
    now, _ = answer("what-if", GPU, *change)
    effects = [json.loads(text)["modules"][0]["what_if"] for text in (was, now)]
    assert effects[0] == effects[1]
    assert effects[0]["pairs"]
    assert "use fusionscope what-if DUMP --disable ID" in note


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_has_too_many_options(name):
    with cli.make_context("fusionscope", ["--help"], resilient_parsing=True) as context:
        command = cli.get_command(context, name)
    options = [option for option in command.params if not getattr(option, "hidden", False)]
    options = [option for option in options if option.param_type_name == "option"]
    assert len(options) <= MOST_OPTIONS.get(name, MOST_OF_OTHERS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--where", "opp=dot"], "did you mean 'op'"),
        (["--where", "outcome=fuzed"], "did you mean 'fused'"),
        (["--where", "dot"], "expected KEY=VALUE"),
        (["--by", "scop"], "did you mean 'scope'"),
        (["--by", "scope,byts"], "did you mean 'bytes'"),
        (["--show", "movement"], "did you mean 'movements'"),
        (["--show", "profile"], "expected profile=DIR"),
    ],
)
def test_what_is_misspelled_is_one_line(words, message, monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)
    result = CliRunner().invoke(cli, ["explain", GPU, *words])
    assert message in str(result.exception)
