"""What a notebook shows: what the terminal does, as HTML and Markdown that no dump can break."""

import importlib.util
import sys
from base64 import b64decode
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

import fusionscope
from fusionscope.cli.main import cli
from fusionscope.errors import UnusableInput
from fusionscope.report.notebook import sections_of
from fusionscope.words.html import to_html
from fusionscope.words.section import (
    Column,
    Entry,
    Lines,
    Plot,
    Section,
    Table,
    command,
    line,
    ranked,
    strong,
)

ROOT = Path(__file__).resolve().parents[2]
DUMPS = ROOT / "samples" / "dumps"
SELECTION = fusionscope.Selection(producer="tanh*")
HOSTILE = "<script>alert(1)</script> \"'&amp; \u202e"


class Parsed(HTMLParser):
    """The tags and the text of a page, whose elements have to nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in ("img", "path"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.texts.append(data)


def run(*words: object) -> str:
    ended = CliRunner().invoke(cli, [str(word) for word in words])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_each_kind_of_block_is_rendered_and_all_text_is_escaped():
    entry = Entry(label=HOSTILE, name=strong(HOSTILE), figures=(HOSTILE,), lines=(line(HOSTILE),))
    section = Section(
        title=HOSTILE,
        summary=strong(HOSTILE),
        blocks=(
            Lines((line(HOSTILE), command(["run", HOSTILE]))),
            ranked("thing", [entry], 3),
            Table(columns=(Column(HOSTILE), Column("n", is_number=True)), rows=((HOSTILE, "1"),)),
            Plot(HOSTILE, (1, 4, 2)),
        ),
    )
    parsed = Parsed(to_html([section]))
    assert parsed.tags == set("div style h4 span p pre table tr td th svg title path".split())
    text = "".join(parsed.texts)
    assert "\u202e" not in text
    # Title and summary, a line and a command, four of the entry, head and cell, twice the caption.
    assert text.count("alert(1)") == 12
    assert "… and 2 more things" in text


@pytest.mark.parametrize("name", ["cpu/loop", "h100/concatenate", "tpu-v5e/softmax"])
def test_an_explanation_says_what_the_command_prints(samples, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # nothing is shortened
    explanation = samples.explanation(name)
    page = Parsed(explanation._repr_html_())
    printed = run("explain", DUMPS / name, "--no-try", "--no-cache").partition("  More:")[0]
    text = "".join("".join(page.texts).split())
    for word in printed.split():
        assert word.rstrip("…") in text, word
    assert "".join(page.texts).split()[0] in explanation._repr_markdown_()


def test_a_selection_of_pairs_or_kernels_shows_these():
    dump = fusionscope.open(DUMPS / "h100/concatenate")
    pairs = dump.explain(SELECTION)
    assert "1 pair selected" in pairs._repr_html_()
    kernels = dump.explain(fusionscope.Selection(kernel="wrapped_*"))
    assert "Why it ends here" in kernels._repr_markdown_()


def test_a_pair_and_a_kernel_stand_for_themselves(samples):
    module = samples.facts("h100/concatenate")
    pair = next(pair for pair in module.pairs if pair.outcome == "not-fused")
    assert "tanh.1.0 -> concatenate.1.0" in "".join(Parsed(pair._repr_html_()).texts)
    assert "pf-negative" in pair._repr_markdown_()
    assert "concatenate.py:10" in module.kernels[0]._repr_html_()
    assert "Costliest refusals" in module._repr_html_()
    (page,) = (
        fusionscope.open(DUMPS / "h100/concatenate")
        .explain(fusionscope.Selection(kernel="wrapped_tanh"))
        .modules[0]
        .kernel_pages
    )
    assert "Outputs" in page._repr_html_()


def test_a_difference_says_what_diff_prints():
    before, after = DUMPS / "h100-without-triton-softmax/softmax", DUMPS / "h100/softmax"
    difference = fusionscope.diff(before, after)
    assert difference._repr_markdown_() in run(
        "diff", before, after, "--format", "markdown", "--all"
    )
    assert "6 pairs ended differently" in difference._repr_html_()
    assert "6 pairs ended differently" in difference.modules[0]._repr_html_()


def test_a_kernel_has_the_figure_of_draw():
    dump = fusionscope.open(DUMPS / "h100/concatenate")
    view = dump.kernel("input_concatenate*")
    drawn = run("draw", DUMPS / "h100/concatenate", "input_concatenate*")
    assert view.svg == drawn
    page = view._repr_html_()
    assert "img" in Parsed(page).tags
    assert b64decode(page.partition("base64,")[2].partition('"')[0]).decode() == drawn
    assert "Why it begins here" in view._repr_markdown_()
    with pytest.raises(UnusableInput, match="nothing matches the kernel 'no_such'"):
        dump.kernel("no_such")


def test_a_report_is_its_page_in_a_frame():
    report = fusionscope.open(DUMPS / "cpu/loop").report()
    frame = report._repr_html_()
    assert Parsed(frame).tags == {"iframe"}
    assert unescape(frame.partition('srcdoc="')[2].partition('"')[0]) == report.html


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_data_frame_has_a_row_each(samples, monkeypatch, library):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}")
    monkeypatch.setattr("fusionscope.report.frames._LIBRARIES", (library,))
    module = samples.facts("h100/concatenate")
    kernels = fusionscope.to_frame(module.kernels)
    assert type(kernels).__module__.partition(".")[0] == library
    assert kernels["bytes_moved"].sum() == module.summary.bytes_moved
    pairs = fusionscope.to_frame(module.pairs)
    assert (pairs["outcome"] == "not-fused").sum() == module.summary.outcomes["not-fused"]
    assert len(fusionscope.to_frame([])) == 0


def test_without_a_library_for_data_frames_that_is_said(samples, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UnusableInput, match="needs pandas or polars; pip install pandas"):
        fusionscope.to_frame(samples.facts("h100/concatenate").pairs)


def test_only_results_have_words():
    with pytest.raises(TypeError, match="no words for int"):
        sections_of(1)


@pytest.mark.slow
def test_the_notebook_of_the_docs_shows_what_it_shows_now(monkeypatch):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    make_notebook = importlib.import_module("make_notebook")
    stored = make_notebook.nbformat.read(make_notebook.FILE, as_version=4)
    results = [
        [[output.data for output in cell.get("outputs", [])] for cell in notebook.cells]
        for notebook in (stored, make_notebook.executed())
    ]
    # Another version of pandas may show a table otherwise.
    own_results = [
        [data for cell in cells for data in cell if "text/markdown" in data] for cells in results
    ]
    assert own_results[0] == own_results[1]
    assert len(own_results[0]) == 4
