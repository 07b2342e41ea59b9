"""What a shell completes, asked as bash asks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fusionscope.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
BASH = shutil.which("bash") or ""
RULES = sorted(path.stem for path in (ROOT / "fusionscope" / "rules" / "pages").glob("cpu-c*.md"))
RECIPES = sorted(path.stem for path in (ROOT / "docs" / "recipes").glob("multiply-*.md"))
# What a user has typed is in the arguments; the words are those of README.
SCRIPT = """
eval "$(_FUSIONSCOPE_COMPLETE=bash_source fusionscope)"
COMP_WORDS=(fusionscope "$@") COMP_CWORD=$#
_fusionscope_completion fusionscope
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def complete(tmp_path):
    """Return what bash offers for the last of some words."""
    if not BASH or b"complete" not in subprocess.check_output([BASH, "-c", "compgen -b"]):
        pytest.skip("no bash that completes")
    program = tmp_path / "fusionscope"
    program.write_text(
        f"#!{sys.executable}\nfrom fusionscope.__main__ import main\nmain()\n", encoding="utf-8"
    )
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }

    def offered(*words: str) -> list[str]:
        command = [BASH, "-euc", SCRIPT, "bash", *words]
        result = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return sorted(result.stdout.split())

    return offered


def test_commands(complete):
    assert complete("") == sorted(COMMANDS)
    assert complete("re") == ["recipes", "record", "report", "rerun"]


def test_options(complete):
    assert complete("verify", "--at-l") == ["--at-least"]
    assert complete("explain", "dump", "--outcome", "f") == ["fused"]


@pytest.mark.parametrize(
    "words",
    [
        ["rules", "cpu-c"],
        ["explain", "dump", "--reason", "cpu-c"],
        ["rerun", "dump", "--disable", "cpu-c"],
    ],
)
def test_rules(complete, words):
    assert len(RULES) > 2
    assert complete(*words) == RULES


def test_recipes(complete):
    assert complete("recipes", "multiply-") == RECIPES


@pytest.mark.parametrize("command", ["capture", "explain", "rerun", "study"])
def test_devices(complete, command):
    assert {"h100", "h200"} <= set(complete(command, "--device", "h"))


def test_versions_of_rules(complete):
    assert "cpu-0.12" in complete("verify", "dump", "--rules", "cpu-0.1")
