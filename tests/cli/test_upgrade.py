"""The `upgrade` command: what it says of one release twice, and what it refuses."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from sample_dumps import unlike_documented

pytestmark = pytest.mark.slow

with_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
MODEL = "import jax.numpy as jnp\n\n\ndef step(x):\n    return jnp.sin(x).sum(axis=0) * 2\n"
BOTH = "--from", sys.executable, "--to", sys.executable, "--arg", "f32[64,32]"


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)


@with_jax
def test_one_release_twice_is_the_same(run):
    result = run("model.py:step", *BOTH, "--no-run")
    assert (result.code, result.errors) == (0, "")
    assert result.out.startswith("same: step for cpu, jaxlib ")
    assert "measured time" not in result.out
    assert "the final HLO is the same" in result.out
    assert Path("fusionscope-upgrade/to/fusionscope-capture.json").exists()


@with_jax
def test_json_is_as_documented(run):
    document = json.loads(run("model.py:step", *BOTH, "--format", "json").out)
    assert document["verdict"] == "same"
    assert [change["figure"] for change in document["changes"][:2]] == ["failures", "measured-time"]
    assert len(document["before"]["runs_us"]) == len(document["after"]["runs_us"]) > 1
    lists = ("boundary", "remedies[]", "code[]", "makers[]")  # there is nothing to tell
    nested = (*lists, "before.packages.*", "after.packages.*")  # nor does it import any
    assert not unlike_documented("upgrade", document, besides=nested)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--from", "nowhere", "--to", sys.executable], "neither a Python nor a release"),
        (["--from", "0.10.1"], "--to"),
        ([*BOTH, "--by", "nothing"], "PRODUCER -> CONSUMER"),
        ([*BOTH, "--device", "no-such-gpu"], "no-such-gpu"),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_line(run, arguments, problem):
    run("model.py:step", *arguments).check_refused(problem)
