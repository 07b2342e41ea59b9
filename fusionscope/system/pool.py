"""The processes that work on several items at once."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from functools import partial
from queue import Queue
from typing import TypeVar

from fusionscope.errors import UnusableInput
from fusionscope.progress import Progress, about, silent

Item = TypeVar("Item")
Result = TypeVar("Result")
Words = Queue[str | None]

_BETWEEN_S = 0.1  # two reports of one process
_KILLED = "{}: the process that worked on it was killed; if memory is short, use fewer --jobs"


def in_processes(
    work: Callable[[Item, Progress], Result],
    items: Sequence[Item],
    name: Callable[[Item], str],
    *,
    jobs: int,
    progress: Progress,
) -> Iterator[Result | UnusableInput]:
    """Yield the result of each of ``items``, in their order. That of an item whose process was
    killed is ``UnusableInput``.
    """
    with ExitStack() as stack:
        words: Words | None = None
        if progress is not silent:
            words = stack.enter_context(multiprocessing.Manager()).Queue()
            stack.enter_context(_relay(words, progress))
        pool = stack.enter_context(_open_pool(min(jobs, len(items))))
        with _ignoring_interrupts():
            futures = [pool.submit(_work, work, item, name(item), words) for item in items]
        for number, (item, future) in enumerate(zip(items, futures, strict=True)):
            progress(f"{number} of {len(items)} done")
            try:
                yield future.result()
            except BrokenProcessPool:
                yield _work_alone(work, item, name(item), words)


def _work_alone(
    work: Callable[[Item, Progress], Result], item: Item, name: str, words: Words | None
) -> Result | UnusableInput:
    """Work on an item that was underway or waiting when another process was killed."""
    with _open_pool(1) as pool:
        with _ignoring_interrupts():
            future: Future[Result] = pool.submit(_work, work, item, name, words)
        try:
            return future.result()
        except BrokenProcessPool:
            return UnusableInput(_KILLED.format(name))


@contextmanager
def _open_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Return a pool, all processes of which end with the block, at once if it is interrupted."""
    children = multiprocessing.active_children()
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(gc.isenabled(),),
    )
    try:
        yield pool
    except BaseException:
        for child in multiprocessing.active_children():
            if child not in children:
                child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Start processes that leave it to this one to react to Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def _relay(words: Words, progress: Progress) -> Iterator[None]:
    """Report what other processes report."""

    def relay() -> None:
        while (message := words.get()) is not None:
            progress(message)

    thread = threading.Thread(target=relay, daemon=True)
    thread.start()
    try:
        yield
    finally:
        words.put(None)
        thread.join()


# In the processes of a pool:


def _begin(collects_garbage: bool) -> None:
    if not collects_garbage:
        gc.disable()
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _work(
    work: Callable[[Item, Progress], Result], item: Item, name: str, words: Words | None
) -> Result:
    progress = silent if words is None else about(name, partial(_report, words, [0.0]))
    return work(item, progress)


def _report(words: Words, last: list[float], step: str) -> None:
    now = time.monotonic()
    if now - last[0] > _BETWEEN_S:
        last[0] = now
        words.put(step)
