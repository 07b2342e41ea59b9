"""Streams, terminals and systems that let a command down: one line, and no mistake of our own."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
CPU = DUMPS / "cpu" / "elementwise"
FULL = Path("/dev/full")
# Stands for a Python: it starts a process that holds the streams, says so in a file and waits.
WAITING = """#!/bin/sh
sleep 1000 &
echo $! > "$TOLD.part"
mv "$TOLD.part" "$TOLD"
sleep 1000
"""


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``line`` with ``$FUSIONSCOPE`` in it."""
    names = {"FUSIONSCOPE": f"{sys.executable} -m fusionscope", "CPU": str(CPU)}
    return subprocess.run(
        ["bash", "-c", line],
        env=os.environ | names | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.skipif(not FULL.exists(), reason="no disk that is always full")
@pytest.mark.parametrize("command", ["explain $CPU", "explain $CPU --format json", "--help"])
def test_a_full_disk_behind_the_output(command):
    result = shell(f"$FUSIONSCOPE {command} > /dev/full")
    assert (result.returncode, result.stderr) == (
        2,
        "fusionscope: standard output: No space left on device\n",
    )


def test_a_closed_output():
    result = shell("$FUSIONSCOPE explain $CPU >&-")
    assert (result.returncode, result.stderr) == (
        2,
        "fusionscope: standard output: Bad file descriptor\n",
    )


def test_a_reader_that_has_seen_enough():
    result = shell("$FUSIONSCOPE explain $CPU --format json | head -1; echo ${PIPESTATUS[0]}")
    assert (result.stdout, result.stderr) == ("{\n0\n", "")


@pytest.mark.parametrize("format_name", ["text", "json", "junit"])
@pytest.mark.parametrize("reader", ["head -1", "true"])
def test_the_exit_code_is_the_answer_whoever_reads_it(tmp_path, format_name, reader):
    expectations = tmp_path / "fusions.toml"
    expectations.write_text("[[expect]]\nkernels = 0\n")
    command = f"check $CPU --expect {expectations} --format {format_name}"
    result = shell(f"$FUSIONSCOPE {command} | {reader} >&2; exit ${{PIPESTATUS[0]}}")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == (reader == "head -1")


def test_a_help_text_that_nobody_reads():
    result = shell("$FUSIONSCOPE explain --help | true; echo ${PIPESTATUS[0]}")
    assert (result.stdout, result.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    ("package", "form"),
    [("click", "text"), ("lark", "text"), ("msgspec", "json"), ("rich", "text")],
)
def test_a_package_that_is_not_installed(tmp_path, package, form):
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.modules[{package!r}] = None\n"
        "from fusionscope.__main__ import main; main()\n"
    )
    command = f"{sys.executable} {program} explain $CPU --format {form}"
    result = shell(command, XDG_CACHE_HOME=str(tmp_path))
    install = f"{sys.executable} -m pip install {package}"
    problem = f"fusionscope: the package {package} is not installed; {install}\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", problem)


def test_errors_that_nobody_can_be_told():
    assert shell("$FUSIONSCOPE explain nowhere 2>&-").returncode == 2
    if FULL.exists():
        assert shell("$FUSIONSCOPE explain nowhere 2>/dev/full").returncode == 2


@pytest.mark.parametrize(
    ("is_terminal", "columns"),
    [
        *((False, size) for size in ("0", "-1", "1000000000", "abc", "3")),
        *((True, size) for size in ("0", "1000000000", "", "\N{SUPERSCRIPT TWO}")),
    ],
)
def test_absurd_sizes_of_a_terminal(columns, is_terminal):
    environment = os.environ | {"COLUMNS": columns, "LINES": columns}
    command = [sys.executable, "-m", "fusionscope", "explain", str(CPU), "--no-try"]
    ours, theirs = pty.openpty() if is_terminal else os.pipe()
    with subprocess.Popen(
        command, env=environment, stdout=theirs, stderr=subprocess.PIPE
    ) as process:
        os.close(theirs)
        out = b""
        try:
            while part := os.read(ours, 1 << 16):
                out += part
        except OSError:  # how a terminal ends
            pass
        os.close(ours)
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0
    assert b"launches" in out
    assert max(map(len, out.split(b"\n"))) < 50_000


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("/bin/true", "ran without an answer, expected a Python"),
        ("/bin/echo", "ran without an answer, expected a Python"),
        ("nowhere", "cannot be run: No such file or directory"),
        ("/", "cannot be run: Permission denied"),
    ],
)
@pytest.mark.parametrize("command", ["rerun $CPU --rest xla", "tune $CPU --budget 1"])
def test_a_python_that_is_none(tmp_path, command, python, message):
    output = "" if command.startswith("tune") else f"--output {tmp_path}/new"
    result = shell(f"$FUSIONSCOPE {command} --python {python} {output}")
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"fusionscope: {python}") and message in line


def is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in "ZX"


WORKING = """
import subprocess, sys, time
from fusionscope.capture import child
child.end_with_parent()
helper = subprocess.Popen(["sleep", "1000"])
open(sys.argv[1], "w").write(str(helper.pid))
time.sleep(1000)
"""
STARTING = """
import sys
from fusionscope.system.processes import run_child
run_child([sys.executable, "-c", sys.argv[1], sys.argv[2]], None, 1000)
"""


def wait_until(condition):
    for _ in range(600):  # the system may take a moment
        if condition():
            return
        time.sleep(0.05)
    assert condition()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked at in /proc")
def test_a_compiling_process_ends_when_its_parent_is_killed(tmp_path):
    reported = tmp_path / "told"
    command = [sys.executable, "-c", STARTING, WORKING, str(reported)]
    with subprocess.Popen(command) as parent:
        wait_until(lambda: reported.exists() and reported.read_text())
        helper = int(reported.read_text())
        worker = int(Path(f"/proc/{helper}/stat").read_text().rpartition(")")[2].split()[1])
        assert is_running(helper) and is_running(worker)
        parent.kill()
    wait_until(lambda: not is_running(helper) and not is_running(worker))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked at in /proc")
@pytest.mark.parametrize("end", ["SIGTERM", "SIGHUP", "--limit"])
def test_nothing_stays_behind(tmp_path, end):
    python = tmp_path / "python"
    python.write_text(WAITING)
    python.chmod(0o755)
    reported, scratch = tmp_path / "told", tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "fusionscope", "rerun", str(CPU), "--rest", "xla"]
    command += ["--python", str(python), "--output", str(tmp_path / "new")]
    command += ["--limit", "3" if end == "--limit" else "100"]
    names = {"TOLD": str(reported), "TMPDIR": str(scratch)}
    with subprocess.Popen(
        command,
        env=os.environ | names,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),  # nohup ignores it
    ) as process:
        while not reported.exists():
            assert process.poll() is None
            time.sleep(0.05)
        if end != "--limit":
            process.send_signal(getattr(signal, end))
        errors = process.communicate()[1]
    assert process.returncode == (2 if end == "--limit" else 128 + getattr(signal, end))
    assert errors.startswith("fusionscope: stopped: it took longer") == (end == "--limit")
    grandchild = int(reported.read_text())
    wait_until(lambda: not is_running(grandchild))
    assert list(scratch.iterdir()) == []
