"""Frees what a step leaves behind."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_MANY_OBJECTS = 2_000_000  # 100 to 200 MB


@contextmanager
def working_memory() -> Iterator[None]:
    """Free at the end of the block, or of a function that this decorates, what it made and nothing
    refers to any more, once that may be much.

    Graphs and modules are full of reference cycles, which only Python's collector frees. Commands
    switch it off (``__main__``), since it looks through all objects again and again. Here it looks
    once, only at what was made since it last looked, and only if that is more than
    ``_MANY_OBJECTS``: it takes a fifth of the time of small steps. Where the collector is on, it is
    left alone.
    """
    try:
        yield
    finally:
        if not gc.isenabled() and gc.get_count()[0] > _MANY_OBJECTS:
            gc.collect()
            gc.freeze()


@contextmanager
def limited_memory(most: int | None) -> Iterator[None]:
    """Let this process have at most ``most`` bytes of memory for data during the block: more is a
    ``MemoryError``. Does nothing for None, and on systems without such limits.
    """
    if most is None or sys.platform == "win32":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [bound for bound in (most, soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
