"""Children end with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from fusionscope.errors import UnusableInput
from fusionscope.system.processes import run_child

# Starts a grandchild, says its number in a file, and ends at once or never.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
with open(sys.argv[1] + ".part", "w") as file:
    file.write(str(child.pid))
import os
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(float(sys.argv[2]))
"""


def is_running(number: int) -> bool:
    """Also counts out those that wait for whoever inherited them."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def gone(number: int) -> bool:
    for _ in range(200):
        if not is_running(number):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked at in /proc")
@pytest.mark.parametrize(("lasts", "limit_s"), [("0", 60.0), ("1000", 2.0)])
def test_grandchildren_end_with_the_child(tmp_path: Path, lasts: str, limit_s: float) -> None:
    reported = tmp_path / "number"
    ended = run_child([sys.executable, "-c", PARENT, str(reported), lasts], None, limit_s)
    assert ended.is_late == (lasts != "0")
    assert gone(int(reported.read_text()))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked at in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_end_all_and_leave_no_folder(tmp_path: Path, number: int) -> None:
    reported = tmp_path / "number"
    command = [sys.executable, "-c", PARENT, str(reported), "1000"]
    code = (
        "from tempfile import TemporaryDirectory\n"
        "from fusionscope.system.processes import run_child\n"
        "from fusionscope.system.signals import end_in_order\n"
        "end_in_order()\n"
        f"with TemporaryDirectory(): run_child({command!r}, None, 100.0)"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"TMPDIR": str(scratch)},
        stderr=subprocess.DEVNULL,
        preexec_fn=partial(signal.signal, number, signal.SIG_DFL),  # nohup ignores some
    )
    while not reported.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(30) in (128 + number, 1, -number)
    assert gone(int(reported.read_text()))
    assert list(scratch.iterdir()) == []


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="cannot be run: No such file or directory"):
        run_child([str(tmp_path / "nowhere")], None, 1.0)
    with pytest.raises(UnusableInput, match="cannot be run: Permission denied"):
        run_child([str(tmp_path)], None, 1.0)
    with pytest.raises(UnusableInput, match="cannot be run"):
        run_child(["a\0b"], None, 1.0)


def test_the_end_of_an_error_stream() -> None:
    code = "import sys; sys.stderr.write('x' * 3_000_000 + 'the end'); sys.exit(3)"
    ended = run_child([sys.executable, "-c", code], None, 60.0)
    assert ended.code == 3
    assert ended.errors.endswith("the end")
    assert len(ended.errors) == 1 << 20
