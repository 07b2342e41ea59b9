"""Keeps the thread that runs a program off the processors of the workers that help it.

On a busy machine, Linux may keep all threads of a process on one processor for as long as the
process lives, and the parts of a CPU kernel then run one after another: the ratio of the same two
programs was 0.56 in some processes and 1.08 in others. With the thread that runs a program on one
processor, drawn at random for each round, and the workers of the CPU client on the others, the same
ratio was 0.56 to 0.59 in nine processes (two processors, five to eight busy threads).

Like ``child.py``, which loads this file, it runs under any Python, and imports nothing of
fusionscope.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

THREADS = Path("/proc/self/task")  # exists on Linux
WORKER = "tf_XLAEigen"  # the name of the threads that run parts of a kernel


@contextmanager
def threads_apart(*, may_move: bool = False) -> Iterator[Callable[[], None]]:
    """Yield what moves the workers of this process away from one processor, drawn at random, and
    all other threads to it. They stay there, or ``may_move`` on. In the end, all threads have their
    processors again.

    Libraries of matrix products use all processors for their workers: apart, they take up to twice
    as long. Threads that stay apart make ratios steady, those that may move make times true.
    Without workers, or with one processor, it does nothing.
    """
    workers: dict[int, bool] = {}
    allowed: dict[int, set[int]] = {}
    for thread in THREADS.iterdir() if THREADS.exists() else ():
        with suppress(OSError):  # it has ended
            name = (thread / "comm").read_text().strip()
            allowed[int(thread.name)] = os.sched_getaffinity(int(thread.name))
            workers[int(thread.name)] = name == WORKER
    processors = sorted(set().union(*allowed.values()))
    chance = random.Random(0)

    def place() -> None:
        if len(processors) < 2 or not any(workers.values()):
            return
        main_processors = {chance.choice(processors)}
        worker_processors = set(processors) - main_processors
        _set(
            {
                thread: worker_processors if is_worker else main_processors
                for thread, is_worker in workers.items()
            }
        )
        if may_move:
            _set(allowed)

    try:
        yield place
    finally:
        _set(allowed)


def _set(processors: dict[int, set[int]]) -> None:
    for thread, allowed in processors.items():
        with suppress(OSError):
            os.sched_setaffinity(thread, allowed)
