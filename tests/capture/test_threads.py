"""The processors of the threads that run a program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Event, Thread, get_native_id

import pytest

from fusionscope.capture.threads import THREADS, WORKER, threads_apart

pytestmark = pytest.mark.skipif(not THREADS.exists(), reason="threads are placed on Linux")


@pytest.fixture
def worker() -> Iterator[int]:
    """The number of a thread with the name of the client's workers."""
    ended, started = Event(), Event()
    numbers: list[int] = []

    def work() -> None:
        (THREADS / str(get_native_id()) / "comm").write_text(WORKER)
        numbers.append(get_native_id())
        started.set()
        ended.wait()

    thread = Thread(target=work)
    thread.start()
    started.wait()
    yield numbers[0]
    ended.set()
    thread.join()


def test_workers_do_not_wait_for_the_thread_that_runs_the_program(worker: int) -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one processor has no others")
    visited = set()
    with threads_apart() as place:
        for _ in range(40):
            place()
            local, remaining = os.sched_getaffinity(0), os.sched_getaffinity(worker)
            assert len(local) == 1 and remaining == allowed - local
            visited.update(local)
        assert len(visited) > 1  # no processor is the only one
    assert os.sched_getaffinity(0) == os.sched_getaffinity(worker) == allowed


def test_threads_that_may_move_have_all_processors(worker: int) -> None:
    allowed = os.sched_getaffinity(0)
    with threads_apart(may_move=True) as place:
        place()
        assert os.sched_getaffinity(0) == os.sched_getaffinity(worker) == allowed


def test_a_process_without_workers_keeps_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusionscope.capture.threads.WORKER", "nobody")
    allowed = os.sched_getaffinity(0)
    with threads_apart() as place:
        place()
        assert os.sched_getaffinity(0) == allowed
