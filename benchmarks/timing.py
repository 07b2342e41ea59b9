"""How long works take beside each other."""

import gc
import time
from collections.abc import Callable
from typing import Any


def seconds(work: Callable[..., Any], *arguments: Any) -> float:
    gc.collect()
    start = time.process_time()
    done = work(*arguments)
    taken = time.process_time() - start
    del done
    return taken


def least(rounds: int, **works: tuple[Callable[..., Any], Any]) -> dict[str, float]:
    """The least processor time of each work, all taken in turn."""
    return {
        name: min(times)
        for name, times in zip(
            works,
            zip(*([seconds(*work) for work in works.values()] for _ in range(rounds)), strict=True),
            strict=True,
        )
    }
