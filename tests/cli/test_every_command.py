"""What holds of every command: its help, its output to files and terminals, and what it refuses."""

import re

import pytest
from sample_dumps import CONTROL, CPU, DUMPS, GPU, on_a_terminal, write

from fusionscope.cli.main import COMMANDS

pytestmark = pytest.mark.slow

FORMATS = ("text", "json", "markdown")
NO_MERGE = DUMPS / "h100-without-multi-output-fusion/reductions"
DIFFERENT = ("diff", DUMPS / "h100/reductions", NO_MERGE)
TRACE = ("history", GPU, "tanh.1")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_examples(run_command, command):
    output = run_command(command, "--help")
    assert output.code == 0
    examples = output.out.partition("Examples:")[2]
    assert re.search(rf"^ +fusionscope {command}( |$)", examples, re.MULTILINE)


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("explain", GPU), 0),
        (("diff", DUMPS / "a100/dense", DUMPS / "b200/dense", "--exit-code"), 1),
        (("diff", GPU, GPU, "--exit-code"), 0),
        (("history", GPU), 0),
        (TRACE, 0),
        (("rules",), 0),
        (("rules", "cpu-concat"), 0),
        (("verify", CPU), 0),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_output_goes_to_a_file(run_command, tmp_path, words, code, format_name):
    printed = run_command(*words, "--format", format_name)
    output = run_command(*words, "--format", format_name, "--output", tmp_path / "file")
    assert (output.code, output.out) == (printed.code, "") == (code, "")
    assert (tmp_path / "file").read_text(encoding="utf-8") == printed.out != ""


@pytest.mark.parametrize(
    "words", [("explain", GPU, "--no-try"), DIFFERENT, TRACE], ids=lambda words: words[0]
)
def test_a_terminal_gets_styles_unless_told_otherwise(run_command, words):
    colour = re.compile(rb"\x1b\[[\d;]*3\d")
    styled = on_a_terminal(*words, COLUMNS="100")
    assert b"\x1b[" in styled if words is TRACE else colour.search(styled)
    assert not colour.search(on_a_terminal(*words, COLUMNS="100", NO_COLOR="1"))
    assert "\x1b" not in run_command(*words, TERM="xterm", CLICOLOR="1").out  # in a pipe


STAGE = next(GPU.glob("*.0028.*.txt*"))
REFUSED = {
    "explain": [
        ([GPU, "--pair", "no arrow"], "PRODUCER -> CONSUMER"),
        ([GPU, "--pair", " -> add"], "PRODUCER -> CONSUMER"),
        ([GPU, "--reason", "no-such-rule"], "no-such-rule"),
        ([GPU, "--top", "0"], "--top"),
    ],
    "diff": [
        (["missing", GPU], "missing"),
        ([GPU, "missing"], "missing"),
        ([GPU, "missing@final"], "missing"),
        ([f"{GPU}@no-such-stage", GPU], "no-such-stage"),
        ([GPU, f"{GPU}@simplification"], "several"),
        ([GPU, f"{GPU}@"], "several"),
        ([GPU, f"{GPU}@99999"], "99999"),
        ([STAGE, f"{STAGE}@final"], "final"),
        ([GPU, "\x1b[31m\nx@final"], "31m"),
        ([GPU, GPU, "--top", "0"], "--top"),
        ([GPU, GPU, "--format", "html"], "--format"),
        ([GPU, GPU, GPU], "unexpected"),
        ([GPU], "AFTER"),
    ],
    "history": [
        (["missing", "tanh.1"], "missing"),
        ([GPU, "--top", "0"], "--top"),
        ([GPU, "--format", "html"], "--format"),
        ([GPU, "tanh.1", "exp.1"], "exp.1"),
    ],
    "rules": [
        (["cpu-concatenate"], "cpu-concat"),
        (["cpu-*"], "fusionscope rules lists them"),
        ([""], "expected one such as"),
        (["\x1b[31m\nred"], "no rule is called"),
        (["cpu-concat", "cpu-no-case"], "cpu-no-case"),
        (["--format", "html"], "--format"),
        (["--output", "/no/such/folder/file"], "/no/such/folder/file"),
    ],
    "verify": [
        ([GPU, "--rules", "cpu-0.12"], "are those of cpu"),
        ([CPU, "--module", "other"], "jit_program"),
        ([CPU, "--rules", "cpu-9"], "cpu-0.12"),
        ([CPU, "--device", "h300"], "h100"),
        ([CPU, "--device", "/no/such/file"], "a file that describes one"),
        ([CPU, "--at-least", "101"], "--at-least"),
        ([CPU, "--at-least", "nan"], "--at-least"),
        ([CPU, "--at-least", "most"], "--at-least"),
    ],
}
# Of all that read dumps, with the dumps that each wants.
EACH = {"explain": [GPU], "diff": [GPU, GPU], "history": [GPU], "verify": [CPU]}
ALIKE = [
    (command, words, message)
    for command, dumps in EACH.items()
    for words, message in (
        ([*dumps[1:], "missing"], "missing"),
        ([*dumps[1:], "x" * 300], "xxx"),
        ([*dumps, "--output", "/no/such/folder/file"], "/no/such/folder/file"),
        ([*dumps, "--format", "yaml"], "--format"),
        ([*dumps, "--no-such-option"], "--no-such-option"),
        ([], "BEFORE" if command == "diff" else "DUMP"),
    )
]


@pytest.mark.main
@pytest.mark.parametrize(
    ("command", "words", "message"),
    [*ALIKE, *((command, *case) for command, cases in REFUSED.items() for case in cases)],
)
def test_what_cannot_be_done_is_said_in_a_line(run_command, command, words, message):
    output = run_command(command, *words)
    output.check_refused(message)
    assert "bug in fusionscope" not in output.errors
    assert CONTROL.search(output.errors.replace("\n", "")) is None


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"notes.md": b"nothing here"},
        {"module_0001.jit_f.debug_options": b"xla_gpu_autotune_level: 0\n"},
    ],
    ids=["empty", "other", "side files only"],
)
@pytest.mark.parametrize(
    "words",
    [
        ("explain", "{}"),
        ("history", "{}", "tanh.1"),
        ("diff", "{}", str(GPU)),
        ("diff", str(GPU), "{}"),
        ("diff", "{}@final", str(GPU)),
    ],
    ids=" ".join,
)
def test_a_directory_without_hlo_says_how_to_dump(run_command, tmp_path, words, files):
    dump = write(tmp_path / "dump", files)
    output = run_command(*(word.format(dump) for word in words))
    output.check_refused("--xla_dump_to")
