"""What foreign files hold reaches no terminal, no Markdown and no annotation alive."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fusionscope.check.expectation import Violation
from fusionscope.check.expectations import EXPECTATIONS
from fusionscope.report.places import Repository
from fusionscope.words.text import cell, code, safe

HERE = Repository(Path("/home/user/project"), Path("/home/user/project/folder"))


def test_only_printable_characters_are_left():
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert safe(everything).isprintable()
    assert len(safe(everything)) == len(everything)
    for odd in "\x1b\r\n\t\x9b\x7f\u061c\u200b\u2028\u2029\u202e\u2066\ufeff\ud800":
        assert safe(odd) == "\N{REPLACEMENT CHARACTER}"
    assert safe("f32[2]{0} äß漢 \N{PILE OF POO}") == "f32[2]{0} äß漢 \N{PILE OF POO}"


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("[here](x)", r"[here\](x)"),
        ("![x](http://a.b/c.png)", r"![x\](http:\//a.b/c.png)"),
        ("[a][b]", r"[a\][b]"),
        ("[a]: x", r"[a\]: x"),
        (r"[a\](x)", r"[a\\\](x)"),
        ("<img src=x>", "&lt;img src=x>"),
        ("&#64;octocat", "&amp;#64;octocat"),
        ("@octocat", "\N{FULLWIDTH COMMERCIAL AT}octocat"),
        ("see www.example.org", r"see www\.example.org"),
        ("a | b", r"a \| b"),
        (r"a \| b", r"a \\\| b"),
        ("`a`", "'a'"),
        ("f32[2,3]{1,0} add(f32[2,3] %x)", "f32[2,3]{1,0} add(f32[2,3] %x)"),
    ],
)
def test_nothing_is_alive_in_markdown(text, output):
    assert cell(text) == output


def test_code_ends_where_it_should():
    assert code("a`b|c") == r"`a'b\|c`"
    assert code("") == ""


def at(source: str | None) -> Violation:
    expectation = EXPECTATIONS["kernels"]("kernels", 2, line=5)
    return Violation(expectation=expectation, module="jit_f", what="has 3 kernels", source=source)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("model.py", "folder/model.py"),
        ("../model.py", "model.py"),
        ("/home/user/project/src/model.py", "src/model.py"),
        ("src\\model.py", "folder/src/model.py"),
        ("../../secret.py", None),
        ("a/../../../secret.py", None),
        ("/etc/passwd", None),
        ("/home/user/project-2/model.py", None),
        ("C:\\model.py", None),
        ("https://example.org/x", None),
        ("", None),
    ],
)
def test_no_path_leaves_the_repository(name, found):
    assert HERE.relative(name) == found


def test_the_expectation_stands_in_for_a_line_elsewhere():
    assert str(HERE.place(at("model.py:7"), "expect.toml")) == str(
        HERE.place(at("/home/user/project/folder/model.py:7"), "expect.toml")
    )
    place = HERE.place(at("/etc/passwd:7"), "expect.toml")
    assert place is not None
    assert (place.file, place.line) == ("folder/expect.toml", 5)
    assert HERE.place(at("model.py"), "/tmp/expect.toml") is None
