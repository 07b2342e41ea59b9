"""A dump with an operation that no rule knows: every command reads it, and says so once."""

import gzip
import shutil
import sys

import pytest
from sample_dumps import CPU, DUMPS

from fusionscope.cli.main import main

COMMANDS = (
    "explain DUMP",
    "explain DUMP --format json",
    "history DUMP",
    "history DUMP tanh.0",
    "verify DUMP --at-least 50",
    "diff DUMP OTHER",
    "diff OTHER DUMP",
    "diff DUMP@pre-fusion DUMP@final",
    "check DUMP --expect EXPECTATIONS",
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("newer")
    dump = shutil.copytree(DUMPS / "cpu" / "elementwise", place / "dump")
    for file in dump.glob("*.txt.gz"):
        text = gzip.decompress(file.read_bytes()).replace(b" tanh(", b" hyper-tanh(")
        file.write_bytes(gzip.compress(text, mtime=0))
    expectations = place / "fusions.toml"
    expectations.write_text('[[expect]]\nfused = "* -> *"\n')
    return {"DUMP": str(dump), "OTHER": str(CPU), "EXPECTATIONS": str(expectations)}


@pytest.mark.parametrize("line", COMMANDS)
def test_an_unknown_operation_is_noted_once(line, places, monkeypatch, capfd):
    for name, place in places.items():
        line = line.replace(name, place)
    monkeypatch.setattr(sys, "argv", ["fusionscope", *line.split()])
    with pytest.raises(SystemExit) as leaving:
        main()
    note = f"{places['DUMP']}: operations of a newer compiler, which no rule covers: hyper-tanh"
    assert leaving.value.code != 2
    assert capfd.readouterr().err == f"fusionscope: {note}\n"


def test_a_dump_without_unknown_operations_has_no_note(monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["fusionscope", "verify", str(CPU)])
    with pytest.raises(SystemExit):
        main()
    assert capfd.readouterr().err == ""
