"""A program alone: its time, and the bandwidth that bounds it."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fusionscope.cli.main import main
from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.rerun.alone import time_alone
from fusionscope.rerun.bandwidth import bandwidth

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
with_jax = pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
with_numpy = pytest.mark.skipif(find_spec("numpy") is None, reason="needs numpy")


@with_numpy
def test_caches_are_faster_than_memory():
    assert bandwidth(1 << 20) > bandwidth(1 << 29) > 1e8


@with_jax
@pytest.mark.slow
def test_a_program_for_a_cpu_is_timed_beside_its_bound(capsys):
    """What must be moved is counted by hand: 512 x 256 numbers are read, and as many written."""
    main(["explain", str(DUMPS / "cpu" / "softmax"), "--compile", "--format", "json"])
    (module,) = json.loads(capsys.readouterr().out)["modules"]
    run, summary = module["run"], module["summary"]
    assert run["at_best_bytes"] == 2 * 4 * 512 * 256
    assert run["at_best_us"] == pytest.approx(run["at_best_bytes"] / run["bandwidth"])
    assert summary["at_best_us"] == run["at_best_us"] < run["time_us"]
    assert summary["at_best_from"] == "measured"


def test_a_program_for_an_absent_gpu_cannot_be_timed():
    (module,) = open_dump(DUMPS / "h100" / "softmax").modules
    with pytest.raises(UnusableInput, match="the GPU is not present"):
        time_alone(module, 1e6, seconds=0.1, python=sys.executable, limit_s=60)
