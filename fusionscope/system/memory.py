"""Frees what a step leaves behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def working_memory() -> Iterator[None]:
    """Free at the end of the block, or of a function that this decorates, what it made and nothing
    refers to any more.

    Graphs and modules are full of reference cycles, which only Python's collector frees. Commands
    switch it off (``__main__``), since it looks through all objects again and again. Here it looks
    once, and only at what the block made. Where the collector is on, it is left alone.
    """
    if gc.isenabled():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
