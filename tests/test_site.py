"""Links of the site that `make site` builds: those that lead to nothing are found."""

import runpy
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[1] / "docs" / "check_site.py"


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("other/", None),
        ("other/index.html#there", None),
        ("/other/#there", None),
        ("#here", None),
        ("file%20name.txt", None),
        ("other/#nowhere", "no such anchor"),
        ("#nowhere", "no such anchor"),
        ("../nothing/", "no such file"),
        ("nothing.html", "no such file"),
    ],
)
def test_links_to_nothing_are_found(tmp_path, link, problem):
    (tmp_path / "other").mkdir()
    (tmp_path / "file name.txt").touch()
    (tmp_path / "other" / "index.html").write_text('<h1 id="there">There</h1>')
    (tmp_path / "index.html").write_text(f'<h1 id="here">Here</h1><a href="{link}">link</a>')
    problems, elsewhere, count = runpy.run_path(str(CHECK))["check"](tmp_path)
    assert problems == ([f"index.html: {link}: {problem}"] if problem else [])
    assert (elsewhere, count) == (set(), 0 if problem else 1)


def test_addresses_elsewhere_are_listed(tmp_path):
    text = '<a href="https://a.example/x"></a><script src="//b.example/y.js"></script>'
    (tmp_path / "index.html").write_text(text)
    actual = runpy.run_path(str(CHECK))["check"](tmp_path)
    assert actual == ([], {"https://a.example/x", "//b.example/y.js"}, 0)
