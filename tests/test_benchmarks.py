"""The page of benchmarks: its tables can be made again."""

import importlib.util
import shlex
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"

spec = importlib.util.spec_from_file_location("benchmarks_all", FOLDER / "all.py")
assert spec is not None and spec.loader is not None
everything = importlib.util.module_from_spec(spec)
spec.loader.exec_module(everything)


def test_each_table_names_a_script_that_is_there():
    page = (FOLDER / "README.md").read_text()
    tables = list(everything.TABLE.finditer(page))
    assert len(tables) == page.count("<!-- end -->") == page.count("<!--") / 2
    for table in tables:
        python, script, *_ = shlex.split(table["command"])
        assert python in ("python", "PYTHON")
        assert (FOLDER.parent / script).is_file()


def test_a_table_is_replaced_and_the_text_around_it_stays(tmp_path, monkeypatch):
    page = tmp_path / "README.md"
    script = tmp_path / "script.py"
    script.write_text("import sys; print('| new', *sys.argv[1:], '|')")
    page.write_text(
        f"before\n<!-- one: python {script} PYTHON DIRECTORY/x -->\n| old |\n<!-- end -->\n"
        f"between\n<!-- two: python {script}.gone -->\n| kept |\n<!-- end -->\nafter\n"
    )
    monkeypatch.setattr(everything, "PAGE", page)
    monkeypatch.setattr("sys.argv", ["all.py", "--python", "other", "--directory", "/dumps"])
    with pytest.raises(SystemExit, match="two ended with 2"):
        everything.main()
    actual = page.read_text()
    assert ", | new other /dumps/x |\n\n<!-- end -->\nbetween\n" in actual
    assert "old" not in actual
    assert actual.startswith("before\n")
    assert actual.endswith("| kept |\n<!-- end -->\nafter\n")
