"""Forks that stand in for child processes in tests that compile."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm_python import Fork, WarmPythons

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")

REPORT = """
import json, os, sys
report = {"arguments": sys.argv, "folder": os.getcwd(), "flags": os.environ.get("XLA_FLAGS")}
report |= {"name": __name__, "path": sys.path[0], "input": sys.stdin.read()}
report |= {"is_leader": os.getsid(0) == os.getpid()}
print(json.dumps(report))
sys.exit(3)
"""
CRASH = "import os; os.abort()"
WAIT = "import time; time.sleep(1000)"


def start_cold(command, environment, input, output, errors, folder):
    return subprocess.Popen(
        command,
        env=environment,
        stdin=input,
        stdout=output,
        stderr=errors,
        cwd=folder,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    for name, text in (("report", REPORT), ("crash", CRASH), ("wait", WAIT)):
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def pythons(folder: Path) -> Iterator[WarmPythons]:
    pythons = WarmPythons(start_cold, folder)
    yield pythons
    pythons.close()


def start(pythons: WarmPythons, script: Path, *arguments: str, flags: str = ""):
    environment = os.environ | {"XLA_FLAGS": flags}
    command = [sys.executable, str(script), *arguments]
    streams = (subprocess.PIPE, subprocess.PIPE, subprocess.DEVNULL)
    return pythons.start(command, environment, *streams, script.parent)


def test_a_fork_is_what_a_process_is(pythons: WarmPythons, folder: Path) -> None:
    children = [
        start(pythons, folder / "report.py", "a", "b c", flags=f"--number={number}")
        for number in range(3)
    ]
    assert [isinstance(child, Fork) for child in children] == [False, True, True]
    reports = []
    for child in children:
        child.stdin.write(b"words")
        child.stdin.close()
        reports.append(json.loads(child.stdout.read()))
        assert child.wait(60) == 3
    assert [report.pop("flags") for report in reports] == [f"--number={n}" for n in range(3)]
    assert reports[0] == reports[1] == reports[2]
    assert reports[0]["is_leader"]


def test_a_fork_ends_as_a_process_does(pythons: WarmPythons, folder: Path) -> None:
    crashed, waiting = (start(pythons, folder / f"{name}.py") for name in ("crash", "wait"))
    assert isinstance(waiting, Fork)
    assert crashed.wait(60) == -signal.SIGABRT
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.01)
    os.killpg(waiting.pid, signal.SIGKILL)
    assert waiting.wait(60) == -signal.SIGKILL
