"""What a command shows of its progress: on a terminal, while it runs, and nothing at the end."""

import os
import pty
import select
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import fusionscope.cli.progress
from fusionscope.cli.progress import show_progress
from fusionscope.compare.difference import compare
from fusionscope.compare.module_history import history_of
from fusionscope.dump import open_dump
from fusionscope.explain import explain
from fusionscope.progress import silent
from fusionscope.verify.verification import verify

DUMPS = Path(__file__).parent.parent.parent / "samples" / "dumps"


@contextmanager
def terminal(monkeypatch, delay_s: float):
    """A terminal that is the error stream, from which ``written`` reads. pytest sets the stream
    anew after fixtures."""
    ours, theirs = pty.openpty()
    monkeypatch.setattr(fusionscope.cli.progress, "_DELAY_S", delay_s)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    with open(theirs, "w") as stream:  # noqa: PTH123
        monkeypatch.setattr(sys, "stderr", stream)
        yield ours
        monkeypatch.undo()
    os.close(ours)


def written(terminal: int, until: str = "") -> str:
    """What has been written, by the time that ``until`` is there."""
    text = ""
    for _ in range(600):
        if select.select([terminal], [], [], 0.1 if until else 0)[0]:
            text += os.read(terminal, 1 << 16).decode()
        if until in text:
            break
    return text


def test_short_work_shows_nothing(monkeypatch):
    with terminal(monkeypatch, delay_s=3600) as screen:
        with show_progress() as progress:
            progress("jit_f: fusion")
        assert written(screen) == ""


def test_long_work_shows_its_step_in_one_line_that_is_gone_at_the_end(monkeypatch):
    with terminal(monkeypatch, delay_s=0) as screen:
        with show_progress() as progress:
            progress("jit_f\x1b[31m: fusion\n")
            assert " jit_f\ufffd[31m: fusion\ufffd" in written(screen, "fusion")
            progress("x" * 200)
            visible = written(screen, "xx…")
            assert max(map(len, visible.replace("\r", "\n").split("\n"))) < 80
        assert written(screen).endswith("\x1b[1A\x1b[2K")  # up to the line, and erased


def test_an_interrupted_command_leaves_the_terminal_as_it_was(monkeypatch):
    with terminal(monkeypatch, delay_s=0) as screen:
        with pytest.raises(KeyboardInterrupt), show_progress() as progress:
            progress("jit_f: fusion")
            assert "\x1b[?25l" in written(screen, "fusion")  # no cursor
            raise KeyboardInterrupt
        end = written(screen)
        assert "\x1b[?25h" in end
        assert end.endswith("\x1b[1A\x1b[2K")


def test_a_pipe_gets_nothing(capsys):
    with show_progress() as progress:
        assert progress is silent
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_every_analysis_names_the_module_and_how_far_it_is(target):
    dump = open_dump(DUMPS / target / "reductions")
    (module,) = (module for module in dump.modules if len(module.stages) > 1)
    words: list[str] = []
    explain(dump, progress=words.append)
    decides = "fusion" if target == "cpu" else "priority-fusion"
    assert any(word.endswith(f": {decides}") and " of " in word for word in words)
    assert any("following values through stage 2 of" in word for word in words)
    assert all(word.startswith(module.name) or "ranking module" in word for word in words)
    words.clear()
    verify(dump, dump.modules, progress=words.append)
    assert any(f"comparing {decides}" in word for word in words)
    words.clear()
    history_of(dump, progress=words.append)
    assert any("reading stage 2 of" in word for word in words)
    assert any("comparing stage 2 of" in word for word in words)


def test_a_difference_names_both_sides():
    words: list[str] = []
    dumps = [str(DUMPS / "h100" / name) for name in ("reductions", "concatenate")]
    compare(*dumps, progress=words.append)
    assert any(": before: pass" in word for word in words)
    assert any(": after: pass" in word for word in words)
