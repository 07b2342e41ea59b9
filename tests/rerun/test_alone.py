"""A program alone: its time, and the bandwidth that bounds it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain.analyze_module import needed_bytes_of
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
def test_a_run_takes_longer_than_its_bound():
    """What must be moved is counted by hand: 256 x 512 numbers are read, and as many written."""
    (module,) = open_dump(DUMPS / "cpu" / "softmax").modules
    size = needed_bytes_of(module)
    assert size == 2 * 4 * 256 * 512
    run = time_alone(module, size, seconds=0.5, python=sys.executable, limit_s=120)
    assert run.at_best_us == pytest.approx(size / run.bandwidth)
    assert run.at_best_us < run.time_us


def test_what_a_loop_of_unknown_length_needs_is_unknown():
    (module,) = open_dump(DUMPS / "cpu" / "loop").modules
    assert needed_bytes_of(module) is None


def test_a_program_for_an_absent_gpu_cannot_be_timed():
    (module,) = open_dump(DUMPS / "h100" / "softmax").modules
    with pytest.raises(UnusableInput, match="the GPU is not present"):
        time_alone(module, 1e6, seconds=0.1, python=sys.executable, limit_s=60)
