"""Defaults of options in pyproject.toml, and when output has colors."""

from pathlib import Path

import pytest
from sample_dumps import CPU, GPU, on_a_terminal

MARK = "[tool.fusionscope.explain]\n"
ESCAPE = "\x1b["
# Stands for a program that XLA compiles.
PROGRAM = """
import gzip, os, pathlib, re, sys
folder = pathlib.Path(re.search('xla_dump_to="(.+?)"', os.environ["XLA_FLAGS"])[1])
folder.mkdir(exist_ok=True)
for file in pathlib.Path(sys.argv[1]).iterdir():
    data = file.read_bytes()
    is_packed = file.suffix == ".gz"
    name = file.stem if is_packed else file.name
    (folder / name).write_bytes(gzip.decompress(data) if is_packed else data)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pyproject to write, above the working directory."""
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    return tmp_path / "pyproject.toml"


def explain(run_command, *options):
    return run_command("explain", CPU, "--no-try", "--no-cache", *options)


def test_values_are_those_of_the_command_line(run_command, project):
    expected = explain(run_command, "--top", "1", "--where", "op=add", "--format", "markdown")
    project.write_text(f'{MARK}top = 1\nwhere = ["op=add"]\nformat = "markdown"\n')
    output = run_command("explain", CPU, "--no-try", "--no-cache")
    assert output == expected
    project.write_text(f'{MARK}top = 1\nwhere = ["op=add"]\nformat = "json"\ntry = false\n')
    assert run_command("explain", CPU, "--no-cache", "--format", "markdown") == expected


def test_the_nearest_file_with_the_table_counts(run_command, project):
    project.write_text(f'{MARK}format = "json"\n')
    assert explain(run_command).out.startswith("{")
    (project.parent / "inside" / "pyproject.toml").write_text("[tool.other]\n")
    assert explain(run_command).out.startswith("{")
    (project.parent / "inside" / "pyproject.toml").write_text("[tool.fusionscope]\n")
    assert not explain(run_command).out.startswith("{")


def test_a_path_is_relative_to_the_file(run_command, project):
    project.write_text(f'{MARK}output = "explained.txt"\n')
    assert explain(run_command).out == ""
    assert "jit_program" in (project.parent / "explained.txt").read_text()


def test_what_record_explains_has_the_defaults_of_explain(run_command, project):
    project.write_text(f'{MARK}format = "markdown"\n')
    program = project.parent / "program.py"
    program.write_text(PROGRAM)
    output = run_command("record", "--output", "dump", "--", "python3", program, CPU)
    assert "## jit_program" in output.errors


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{MARK}tops = 1\n", "2: unknown key 'tops' in tool.fusionscope.explain, did you mean"),
        (f'{MARK}top = "x"\n', "2: top = 'x': 'x' is not a valid integer"),
        (f"{MARK}top = 0\n", "2: top = 0: 0 is not in the range"),
        (f'{MARK}where = "op=add"\n', "2: where = 'op=add', expected a list of texts"),
        (f"{MARK}no-cache = 1\n", "2: no-cache = 1, expected true or false"),
        (f"{MARK}module = true\n", "2: module = True, expected a text or a number"),
        (f"{MARK}dump = 'x'\n", "unknown key 'dump'"),
        (f"{MARK}op = 'x'\n", "unknown key 'op'"),  # an old spelling
        ("[tool.fusionscope]\nexplian = 1\n", "2: unknown key 'explian' in tool.fusionscope"),
        ("[tool.fusionscope]\nexplain = 1\n", "expected a table of options"),
        ("[tool.fusionscope]\ncolor = 1\n", "2: color = 1, expected"),
        ("[tool.fusionscope\n", "not TOML"),
    ],
)
def test_what_is_not_an_option_is_said_in_a_line(run_command, project, content, message):
    project.write_text(content)
    output = run_command("explain", CPU)
    output.check_refused(message)
    assert "pyproject.toml:" in output.errors


def test_tables_of_check_may_stand_beside_defaults(run_command, project):
    inside = project.parent / "inside" / "pyproject.toml"
    inside.write_text(
        '[[tool.fusionscope.expect]]\nlaunches = 0\n\n[tool.fusionscope.check]\nformat = "json"\n'
    )
    output = run_command("check", CPU)
    assert (output.code, output.out[0]) == (1, "{")


@pytest.mark.slow
def test_colors_are_a_choice(run_command, project):
    words = ("explain", GPU, "--no-try")
    plain = run_command(*words).out
    colored = run_command("--color", "always", *words, NO_COLOR="1").out
    assert ESCAPE in colored and ESCAPE not in plain
    assert run_command("--color", "always", *words, "--output", "file").out == ""
    assert Path("file").read_text() == plain
    project.write_text('[tool.fusionscope]\ncolor = "always"\n')
    assert run_command(*words).out == colored
    assert run_command("--color", "never", *words).out == plain
    assert b"\x1b[3" not in on_a_terminal("--color", "never", *words, COLUMNS="100")
