"""Work on several items, in their order, in this process or in several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from fusionscope.errors import UnusableInput
from fusionscope.progress import Progress, each_of

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Item, Progress], Result],
    items: Sequence[Item],
    name: Callable[[Item], str],
    *,
    jobs: int,
    progress: Progress,
) -> Iterator[Result | UnusableInput]:
    """Yield the result of each of ``items``, in their order, or the ``UnusableInput`` that it
    raised.

    Up to ``jobs`` processes work at once; if that is more than one, ``work``, items and results are
    pickled. A process that is killed costs only its own item. Any other error ends all processes.
    """
    if jobs > 1 and len(items) > 1:
        from fusionscope.system.pool import in_processes

        own_work = partial(_outcome, work)
        yield from in_processes(own_work, items, name, jobs=jobs, progress=progress)
        return
    for item, own_progress in each_of(items, name, progress):
        yield _outcome(work, item, own_progress)


def _outcome(
    work: Callable[[Item, Progress], Result], item: Item, progress: Progress
) -> Result | UnusableInput:
    """Return the result of ``work``, or the ``UnusableInput`` that it raises."""
    try:
        return work(item, progress)
    except UnusableInput as error:
        return error
