"""How an analysis reports what it is doing: to a function that takes a few words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

Item = TypeVar("Item")

# Called with each step as it begins, such as "jit_step: replaying priority-fusion".
Progress = Callable[[str], None]


def silent(_words: str) -> None:
    """Report nothing."""


def about(subject: str, progress: Progress) -> Progress:
    """Return a function that reports steps of the work on ``subject``."""
    return lambda words: progress(f"{subject}: {words}")


def counted(items: Collection[Item], words: str, progress: Progress) -> Iterator[Item]:
    """Yield ``items``, each reported with its number: "reading stage 3 of 118"."""
    for number, item in enumerate(items, 1):
        progress(f"{words} {number} of {len(items)}")
        yield item


def each_of(
    items: Collection[Item], name: Callable[[Item], object], progress: Progress
) -> Iterator[tuple[Item, Progress]]:
    """Yield ``items``, each with a function that reports steps as "``name`` (2 of 3)"."""
    for number, item in enumerate(items, 1):
        subject = f"{name(item)} ({number} of {len(items)})" if len(items) > 1 else f"{name(item)}"
        progress(subject)
        yield item, about(subject, progress)
