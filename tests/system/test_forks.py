"""Copies of the process."""

from __future__ import annotations

import pytest

from fusionscope.system.forks import Forks, can_fork

pytestmark = [
    pytest.mark.skipif(not can_fork(), reason="this system cannot copy a process"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_copy_has_what_was_there_and_returns_one_result(jobs):
    forks: Forks[str] = Forks(jobs)
    seen = ["before"]
    for key in ("first", "second", "third"):
        if forks.split(key):
            seen.append(f"only in the {forks.current}")
            forks.end(seen)
        seen.append(key)
    assert forks.current is None
    assert forks.results() == {
        "first": ["before", "only in the first"],
        "second": ["before", "first", "only in the second"],
        "third": ["before", "first", "second", "only in the third"],
    }
    assert seen == ["before", "first", "second", "third"]


def test_a_copy_that_fails_has_no_result():
    forks: Forks[int] = Forks(1)
    if forks.split(0):
        forks.fail()
    if forks.split(1):
        forks.end("x" * 1_000_000)  # more than a pipe holds
    assert forks.results() == {1: "x" * 1_000_000}
