"""What people see of samples: texts in `__snapshots__/` that a person has read and approved.

`make approve` rewrites them; their difference is to be read before it is committed."""

import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from fusionscope.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SCREENS = {
    "concatenate": "explain h100/concatenate --top 5",
    "concatenate in markdown": "explain h100/concatenate --format markdown",
    "one kernel": "explain h100/concatenate --kernel wrapped_*",
    "library calls": "explain h100-without-triton-gemm/projections --top 5",
    "compile time": "explain h100/attention --top 1",
    "a loop": "explain cpu/loop",
    "a TPU": "explain tpu-v5e/attention",
    "by file": "explain cpu/concatenate --by file,1",
    "overruled": "explain h100/reductions --reason pf-negative",
    "a rule left out": "what-if cpu/concatenate --disable cpu-concat",
}


class Screen(SingleFileSnapshotExtension):
    """One text file for each screen."""

    file_extension = "txt"
    _write_mode = WriteMode.TEXT


@pytest.mark.parametrize("command", SCREENS.values(), ids=SCREENS.keys())
def test_screen(
    command: str,
    snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name, dump, *options = command.split()
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "argv", ["fusionscope", name, f"samples/dumps/{dump}", *options])
    with pytest.raises(SystemExit) as ending:
        main()
    printed, errors = capfd.readouterr()
    assert (ending.value.code or 0, errors) == (0, "")
    assert printed == snapshot(extension_class=Screen)
