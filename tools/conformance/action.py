"""Runs the steps of action.yml as they are written, on a pull request that is worse, then better.

The repository, its origin and the event are made in a temporary folder. `gh` is replaced by a
program that keeps comments in a file, and asks the real `jq` for `--jq`. Needs PyYAML, jq and git;
PATH is a Python with jax. Exit code 1 if a step does not do what it should.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import yaml

from conformance.findings import ROOT, Finding, note

MARKER = "<!-- fusionscope check -->"
MODEL = """
import jax
import jax.numpy as jnp

def mix(rows, others):
    return jnp.sqrt(jnp.abs(jnp.tanh(rows) + others)) + 1
"""
MATRIX = """
[[program]]
function = "model.py:mix"
arguments = ["f32[512,384]", "f32[512,384]"]

[[target]]
device = "{device}"
"""
GH = """#!{python}
import json, subprocess, sys
from pathlib import Path

store, arguments = Path({store!r}), sys.argv[1:]
comments = json.loads(store.read_text())
assert arguments.pop(0) == "api", arguments
given = {{}}
while arguments:
    word = arguments.pop(0)
    if word in ("--jq", "--method", "--field"):
        given[word] = arguments.pop(0)
    elif word not in ("--paginate", "--silent"):
        given["path"] = word
if "--jq" in given:
    done = subprocess.run(["jq", "-r", given["--jq"]], input=json.dumps(comments), text=True)
    sys.exit(done.returncode)
name, _, file = given["--field"].partition("=@")
assert name == "body"
body = Path(file).read_text()
if given.get("--method") == "PATCH":
    (found,) = (each for each in comments if str(each["id"]) == given["path"].rpartition("/")[2])
    assert given["path"] == "repos/owner/name/issues/comments/" + str(found["id"])
    found["body"] = body
else:
    assert given["path"] == "repos/owner/name/issues/7/comments", given
    comments.append({{"id": 100 + len(comments), "user": {{"type": "Bot"}}, "body": body}})
store.write_text(json.dumps(comments))
"""


def value_of(expression: str, values: dict[str, str]) -> str:
    """Return text with its `${{ }}` replaced."""

    def known(match: re.Match[str]) -> str:
        return next(filter(None, (values.get(name.strip()) for name in match[1].split("||"))), "")

    return re.sub(r"\$\{\{(.*?)\}\}", known, expression)


def is_true(condition: str, values: dict[str, str]) -> bool:
    """Return whether comparisons that are joined by && hold."""
    for part in condition.split("&&"):
        name, _, expected = part.partition("==")
        if values.get(name.strip(), "") != expected.strip().strip("'"):
            return False
    return True


def run_action(folder: Path, repository: Path, inputs: dict[str, str], base: str) -> int:
    """Run the steps of a composite action as a runner does. Return the exit code of the job."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    values = {f"inputs.{name}": each["default"] for name, each in action["inputs"].items()}
    values |= {f"inputs.{name}": value for name, value in inputs.items()}
    values |= {
        "github.event.pull_request.base.sha": base,
        "github.event.pull_request.number": "7",
        "github.event_name": "pull_request",
        "github.token": "secret",
    }
    for step in action["runs"]["steps"]:
        if "if" in step and not is_true(step["if"], values):
            continue
        output = folder / "output"
        output.write_text("")
        environment = os.environ | {
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_REPOSITORY": "owner/name",
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(folder / "temp"),
        }
        environment |= {name: value_of(v, values) for name, v in step.get("env", {}).items()}
        where = repository / value_of(step.get("working-directory", "."), values)
        # As GitHub runs `shell: bash`.
        process = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=where,
            env=environment,
        )
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            values[f"steps.{step.get('id')}.outputs.{name}"] = value
        print(f"  step {step['name']}: exit code {process.returncode}", flush=True)
        if process.returncode:
            return process.returncode
    return 0


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=n@localhost", "-c", "commit.gpgsign=false")
    process = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return process.stdout.strip()


def make_pull_request(folder: Path, device: str) -> tuple[Path, str]:
    """Make a repository, and a shallow clone of its branch as actions/checkout makes one. Return
    the clone, and the commit of the base.
    """
    origin, clone = folder / "origin", folder / "clone"
    origin.mkdir()
    (origin / "model.py").write_text(MODEL)
    (origin / "fusionscope.toml").write_text(MATRIX.format(device=device))
    git(origin, "init", "--quiet", "--initial-branch", "main")
    git(origin, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(origin, "add", ".")
    git(origin, "commit", "--quiet", "--message", "one")
    base = git(origin, "rev-parse", "HEAD")
    git(origin, "checkout", "--quiet", "-b", "worse")
    worse = MODEL.replace("jnp.tanh(rows)", "jax.lax.optimization_barrier(jnp.tanh(rows))")
    (origin / "model.py").write_text(worse)
    git(origin, "commit", "--quiet", "--all", "--message", "two")
    git(folder, "clone", "--quiet", "--depth=1", "--branch", "worse", f"file://{origin}", "clone")
    return clone, base


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--device", default="cpu")


def findings(options: Namespace) -> Iterator[Finding]:
    if shutil.which("jq") is None:
        raise SystemExit("jq is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "temp").mkdir()
        (folder / "bin").mkdir()
        store, gh = folder / "comments.json", folder / "bin" / "gh"
        foreign_comments = [
            {"id": 1, "user": {"type": "User"}, "body": f"{MARKER} quoted by somebody"},
            {"id": 2, "user": {"type": "Bot"}, "body": "of another action"},
        ]
        store.write_text(json.dumps(foreign_comments))
        gh.write_text(GH.format(python=sys.executable, store=str(store)))
        gh.chmod(gh.stat().st_mode | stat.S_IXUSR)
        clone, base = make_pull_request(folder, options.device)
        bodies = []
        for words, text in (("worse", None), ("the same again", None), ("as it was", MODEL)):
            if text is not None:
                (clone / "model.py").write_text(text)
            print(f"a pull request, {words}", flush=True)
            code = run_action(folder, clone, {"python": options.python}, base)
            comments = json.loads(store.read_text())
            assert comments[:2] == foreign_comments, "a comment of somebody else was changed"
            (own_comment,) = comments[2:]
            bodies.append((code, own_comment["body"]))
        print(bodies[0][1])
        (first, body), (second, same), (third, good) = bodies
        assert (first, second, third) == (1, 1, 0), (first, second, third)
        assert body.startswith(f"{MARKER}\n## fusionscope check: 1 of 1 expectation not met")
        assert "tanh" in body and body == same
        assert "1 expectation met" in good and "no figure changed" in good
        sarif = json.loads((folder / "temp" / "fusionscope-check" / "fusions.sarif").read_text())
        assert sarif["runs"][0]["results"] == []
        assert (folder / "summary.md").read_text().count("## fusionscope check") == 3
    yield note("all steps did what they should")
