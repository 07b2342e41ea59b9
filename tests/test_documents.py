"""What README and docs show is so, and what they link to is there."""

import functools
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fusionscope.agents.questions import Questions
from fusionscope.cli.main import COMMANDS
from fusionscope.system.roots import Roots
from fusionscope.versions.known import COMPILERS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "fusionscope" / "rules" / "pages").glob("*.md"),
    *(ROOT / "docs" / "recipes").glob("*.md"),
    *(ROOT / "benchmarks").glob("*.md"),
    *(ROOT / "samples").glob("*.md"),
    *(ROOT / "skills").glob("*/SKILL.md"),
]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """Headings, as links name them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)]+)\)", path.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_rules_that_doctor_lists_are_those_that_there_are():
    page = (ROOT / "docs" / "doctor.md").read_text()
    names = re.search(r"^  rules: (.*?)\n  compiles with", page, re.DOTALL | re.MULTILINE)[1]
    assert names.replace(",", "").split() == list(COMPILERS)


def test_the_pages_of_recipes_are_what_the_recipes_say():
    docs = ROOT / "docs"
    files = [docs / "recipes.md", *(docs / "recipes").glob("*.md")]
    output = {path.relative_to(docs).as_posix(): path.read_text() for path in files}
    scope = runpy.run_path(str(docs / "make_recipes.py"))
    assert output == scope["pages"](), "run python docs/make_recipes.py"


def test_the_published_schemas_are_what_the_types_of_documents_say():
    output = {path.name: path.read_text() for path in (ROOT / "docs" / "schema").iterdir()}
    scope = runpy.run_path(str(ROOT / "docs" / "make_schema.py"))
    assert output == scope["schemas"](), "run python docs/make_schema.py"
    assert (ROOT / "docs" / "json.md").read_text() == scope["Page"]().text()


def test_the_page_of_commands_is_what_their_help_says():
    scope = runpy.run_path(str(ROOT / "docs" / "make_commands.py"))
    page = (ROOT / "docs" / "commands.md").read_text()
    assert page == scope["page"](), "run python docs/make_commands.py"


def test_the_index_lists_every_command():
    index = (ROOT / "docs" / "index.md").read_text()
    table = index.partition("\n## Commands\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| \[`([\w-]+)`\]", table, re.MULTILINE) == list(COMMANDS)


def test_every_field_in_json_has_a_meaning():
    for file in (ROOT / "docs" / "schema").iterdir():
        for name, kind in json.loads(file.read_text())["$defs"].items():
            fields = kind.get("properties", {}).items()
            assert [field for field, about in fields if "description" not in about] in (
                [],
                ["schema"],
            ), (file.name, name)


def test_every_page_is_linked_from_the_index():
    index = (ROOT / "docs" / "index.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, page.name


@pytest.mark.main
@pytest.mark.skipif(find_spec("jax") is not None, reason="with jax, recipes are tried")
def test_readme_shows_what_its_first_command_prints():
    install, _, command = blocks(README, "sh")[0].splitlines()[0].partition(" && ")
    assert install == "pip install ."
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    result = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=True,
    )
    printed = [line.rstrip() for line in result.stdout.decode().rstrip().splitlines()]
    assert blocks(README, "text")[0].splitlines() == printed


def test_readme_shows_figures_that_it_explains():
    """The paragraph below the output repeats figures of it."""
    visible = blocks(README, "text")[0]
    paragraph = README.read_text().partition("Read it like this:")[2].partition("\n## ")[0]
    figures = re.findall(r"\d[\d.]* [kM]B|(?<=be )\d+(?= kernels)", paragraph)
    assert len(figures) == 4
    for figure in figures:
        assert figure in visible, figure


@pytest.mark.main
def test_the_library_works_as_its_page_shows(tmp_path):
    (code,) = blocks(ROOT / "docs" / "library.md", "python")
    sample = ROOT / "samples" / "dumps" / "h100" / "concatenate"
    (tmp_path / "dump").symlink_to(sample)
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "tanh.1.0 concatenate.1.0 not-fused pf-negative" in result.stdout


@functools.cache
def help_of(command: str) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "fusionscope", command, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout


def test_commands_in_documents_have_options_that_exist():
    for path in DOCUMENTS:
        for block in blocks(path, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                if re.match(r"([A-Z_]+=\S* )*fusionscope ", line):
                    _, _, words_after = line.partition("fusionscope ")
                    command, *words = shlex.split(words_after, comments=True)
                    visible = help_of(command)
                    for word in words:
                        assert not word.startswith("--") or word in visible, line


def test_the_skill_names_commands_options_and_tools_that_exist():
    text = (ROOT / "skills" / "fusionscope" / "SKILL.md").read_text()
    rows = re.findall(r"^\| [^|`]+\? \| `([^`]+)`[^|]*\|(.*)\|$", text, re.MULTILINE)
    assert len(rows) > 10
    for command, _ in rows:
        name, *words = shlex.split(command)
        assert name in COMMANDS
        for word in words:
            assert not word.startswith("--") or word in help_of(name), command
    tools = {tool for _, cell in rows for tool in re.findall(r"`(\w+)`", cell)}
    assert tools == {tool.__name__ for tool in Questions(Roots(())).tools} | {"rerun"}


def test_llms_txt_links_to_pages_that_exist():
    text = (ROOT / "docs" / "llms.txt").read_text()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10 and text.startswith("# fusionscope\n\n> ")
    for link in links:
        assert (ROOT / link).is_file(), link


def output_of(command: str) -> str:
    """What a command prints in full, on one line."""
    result = subprocess.run(
        [sys.executable, "-m", *shlex.split(command), *([] if "verify" in command else ["--all"])],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return " ".join(result.stdout.decode().split())


SOFTMAX = "samples/dumps/h100/softmax samples/dumps/h100-without-triton-softmax/softmax"
DENSE = "samples/dumps/a100/dense samples/dumps/b200/dense"


@pytest.mark.parametrize(
    ("page", "number", "command"),
    [
        ("history.md", 0, "fusionscope history samples/dumps/h100/softmax"),
        ("diff.md", 0, f"fusionscope diff {SOFTMAX}"),
        ("diff.md", 1, f"fusionscope diff {SOFTMAX}"),
        ("diff.md", 2, f"fusionscope diff {DENSE}"),
        ("verify.md", 0, "fusionscope verify samples/dumps/cpu/reductions"),
        ("verify.md", 1, "fusionscope verify samples/dumps/h100/attention"),
    ],
)
def test_pages_show_what_commands_print(page, number, command):
    printed = output_of(command)
    for line in blocks(ROOT / "docs" / page, "text")[number].splitlines():
        assert " ".join(line.split()) in printed, line
