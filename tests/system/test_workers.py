"""Work in processes: results in order, errors of one item only, nothing left behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from fusionscope.errors import UnusableInput
from fusionscope.progress import silent
from fusionscope.system.workers import in_order


def work(item, progress):
    progress(f"step {item}")
    if item == 2:
        raise UnusableInput("unreadable", file="stage.txt", line=3, hint="dump again")
    if item == 3 and multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    if item == 9:
        raise ZeroDivisionError
    return item * 10


def words(results):
    return [str(result) for result in results]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_and_errors_come_in_order(jobs):
    steps: list[str] = []
    actual = words(in_order(work, [4, 2, 1, 5], str, jobs=jobs, progress=steps.append))
    assert actual == ["40", "stage.txt:3: unreadable; dump again", "10", "50"]
    assert "4: step 4" in [step.replace(" (1 of 4)", "") for step in steps]


def test_a_killed_process_costs_its_own_item():
    actual = words(in_order(work, [1, 3, 4, 5], str, jobs=2, progress=silent))
    assert actual[0] == "10"
    assert actual[1].startswith("3: the process that worked on it was killed")
    assert actual[2:] == ["40", "50"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_any_other_error_ends_all(jobs):
    with pytest.raises(ZeroDivisionError):
        list(in_order(work, [9, 1], str, jobs=jobs, progress=silent))
    assert not multiprocessing.active_children()


def test_an_interrupt_ends_all_processes_without_a_word(tmp_path):
    """As on Ctrl-C, all processes of the group get the signal."""
    (tmp_path / "waiting.py").write_text(
        textwrap.dedent(
            """
            import os, signal, sys, time
            from pathlib import Path
            from fusionscope.progress import silent
            from fusionscope.system.workers import in_order

            def work(item, progress):
                Path(sys.argv[1], str(os.getpid())).touch()
                time.sleep(600)

            if __name__ == "__main__":
                # A shell that runs the tests in the background ignores interrupts.
                signal.signal(signal.SIGINT, signal.default_int_handler)
                try:
                    list(in_order(work, [1, 2], str, jobs=2, progress=silent))
                except KeyboardInterrupt:
                    sys.exit(130)
            """
        )
    )
    started = tmp_path / "started"
    started.mkdir()
    child = subprocess.Popen(
        [sys.executable, str(tmp_path / "waiting.py"), str(started)],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    for _ in range(600):
        if len(list(started.iterdir())) == 2:
            break
        time.sleep(0.1)
    os.killpg(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (130, b"")
    for path in started.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name), 0)
