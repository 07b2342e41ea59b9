"""What the library logs: steps, and what could not be read. It prints nothing."""

import logging
import shutil
from pathlib import Path

import pytest

import fusionscope

SAMPLE = Path(__file__).parents[1] / "samples" / "dumps" / "cpu" / "elementwise"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A dump with a module whose final stage is cut off."""
    shutil.copytree(SAMPLE, tmp_path / "dump")
    file = "module_0009.jit_other.cpu_after_optimizations.txt"
    (tmp_path / "dump" / file).write_text("HloModule jit_other\n\nENTRY")
    return tmp_path / "dump"


def test_steps_are_debug_messages_and_unreadable_files_warnings(damaged, caplog):
    caplog.set_level(logging.DEBUG, "fusionscope")
    explanation = fusionscope.open(damaged).explain()
    by_level = {
        level: [record.getMessage() for record in caplog.records if record.levelno == level]
        for level in (logging.DEBUG, logging.WARNING)
    }
    assert by_level[logging.WARNING] == list(explanation.problems) != []
    assert any("jit_program" in step for step in by_level[logging.DEBUG])


def test_nothing_is_printed(damaged, capfd):
    fusionscope.open(damaged).explain()
    fusionscope.diff(SAMPLE, damaged)
    assert capfd.readouterr() == ("", "")
