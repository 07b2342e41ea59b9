"""Measures the bandwidth of memory, or of the caches that hold as much.

``runner.py`` loads this file in a child process, under any Python that has jax: it imports nothing
of fusionscope, and numpy only in functions.

A bound of times needs the most that the processors can move, so the best of many short runs of the
faster way counts: reading (a maximum) or copying, with all processors at once. Small sizes count as
larger ones, since a call of numpy takes as long as to move them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Barrier

_LEAST = 65_536  # bytes of a processor
_MOST = 256 << 20  # bytes of a processor: no cache holds more
_STEP = 8 << 20  # bytes that one timed call reads at least
_SECONDS, _TURNS = 0.05, 3  # for each way and size


def bandwidth(size: int) -> float:
    """Return the bytes per second that pass at most if ``size`` bytes are moved again and again.

    A half and a quarter of it are tried, too: a part of a program may lie in a cache.
    """
    processors = _processors()
    part = min(max(size // len(processors), 4 * _LEAST), _MOST)
    return max(_fastest(part // divisor, processors) for divisor in (1, 2, 4))


def _processors() -> list[int]:
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return list(range(os.cpu_count() or 1))


def _fastest(part: int, processors: list[int]) -> float:
    ways = [partial(prepare, part) for prepare in (_reading, _copying)] * _TURNS
    return max(_rate(way, processors) for way in ways)


def _rate(prepare: Callable[[], tuple[Callable[[], object], int]], processors: list[int]) -> float:
    """Return the bytes per second of one way on all processors at once, in its best moment."""
    ready = Barrier(len(processors))
    end = time.perf_counter() + _SECONDS

    def work(processor: int) -> float:
        with suppress(AttributeError, OSError):
            os.sched_setaffinity(0, {processor})  # of this thread
        move, moved = prepare()
        move()
        ready.wait()
        shortest = float("inf")
        while True:
            begin = time.perf_counter()
            move()
            now = time.perf_counter()
            shortest = min(shortest, now - begin)
            if now > end:
                return moved / shortest

    with ThreadPoolExecutor(len(processors)) as pool:
        return sum(pool.map(work, processors))


def _reading(part: int) -> tuple[Callable[[], object], int]:
    """Return what reads ``part`` bytes as often as one call needs, and the bytes of a call."""
    import numpy

    repeats = max(1, _STEP // part)
    array = numpy.ones(part // 4, numpy.float32)
    again = numpy.broadcast_to(array, (repeats, len(array)))
    out = numpy.empty(repeats, numpy.float32)
    return partial(again.max, axis=1, out=out), repeats * array.nbytes


def _copying(part: int) -> tuple[Callable[[], object], int]:
    """Return what copies half of ``part`` bytes to the other half, and the bytes of a call."""
    import numpy

    source = numpy.ones(part // 8, numpy.float32)
    return partial(numpy.copyto, numpy.zeros_like(source), source), 2 * source.nbytes
