"""The `rerun` command: what it refuses, and what it tells."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest
from sample_dumps import DUMPS, documented, keys

GPU = DUMPS / "h100/concatenate"
with_cuda = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None, reason="needs jax's plugin for CUDA"
)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([GPU], "nothing to try"),
        ([GPU, "--replay", "--no-fusion"], "several things at once"),
        ([GPU, "--replay", "--allow", "a -> b"], "several things at once"),
        ([DUMPS / "cpu/concatenate", "--replay"], "was not compiled for a GPU"),
        ([GPU, "--replay", "--module", "nothing"], "no module matches"),
        (["nowhere", "--replay"], "no such file"),
        ([GPU, "--allow", "concatenate"], "expected"),
    ],
)
def test_what_cannot_be_tried_is_told_in_one_line(run, arguments, problem):
    done = run(*arguments)
    assert (done.code, done.out, done.errors.count("\n")) == (2, "", 1)
    assert problem in done.errors


@with_cuda
def test_text_and_json(run, tmp_path):
    done = run(GPU, "--allow", "* -> concatenate*", "--output", tmp_path / "text")
    assert done.code == 0
    assert "the final module is what was planned" in done.out
    assert "not-fused → " in done.out
    done = run(GPU, "--no-fusion", "--output", tmp_path / "json", "--format", "json")
    document = json.loads(done.out)
    assert document["holds"]
    assert document["variant"]["launches"] > document["baseline"]["launches"]
    found, described = (
        {re.split(r"[.\[]", each)[0] for each in names}
        for names in (keys(document), documented("rerun"))
    )
    assert found == described


def test_help_shows_examples(run):
    done = run("--help")
    assert done.code == 0
    assert "fusionscope rerun dump_dir/ --replay" in done.out
