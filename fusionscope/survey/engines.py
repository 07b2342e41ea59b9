"""What a survey runs on: this process, several on this machine, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fusionscope.errors import UnusableInput
from fusionscope.progress import Progress, silent
from fusionscope.survey.needs import needed
from fusionscope.system.workers import in_order

Item = TypeVar("Item")
Result = TypeVar("Result")

_WAIT_S = 30.0  # for a scheduler


class Engine(Protocol):
    """Calls a function for many items. Yields results in the order of the items; that of an item
    whose process was killed is ``UnusableInput``.
    """

    def map(
        self, work: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[Result | UnusableInput]: ...


@dataclass(frozen=True, slots=True)
class Processes:
    """``jobs`` processes of this machine; this one alone if that is 1."""

    jobs: int

    def map(
        self, work: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[Result | UnusableInput]:
        return in_order(
            _WithoutProgress(work), items, lambda _: "a dump", jobs=self.jobs, progress=silent
        )


@dataclass(frozen=True, slots=True)
class _WithoutProgress:
    work: Callable[[Any], Any]

    def __call__(self, item: Any, progress: Progress) -> Any:
        return self.work(item)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The workers of a Dask scheduler, which have to have fusionscope installed."""

    client: Any

    def map(
        self, work: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[Result | UnusableInput]:
        distributed = needed("distributed", "dask")
        futures = self.client.map(work, items, pure=False)
        try:
            for place, future in enumerate(futures):
                try:
                    yield future.result()
                except distributed.scheduler.KilledWorker as error:
                    yield UnusableInput(f"the workers that worked on it were killed: {error}")
                futures[place] = None  # the cluster forgets the result
        finally:
            self.client.cancel([future for future in futures if future is not None])


@contextmanager
def cluster(address: str) -> Iterator[Engine]:
    """Return the workers of the scheduler at ``address``. Raises ``UnusableInput`` without one."""
    distributed = needed("distributed", "dask")
    try:
        client = distributed.Client(address, timeout=_WAIT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise UnusableInput(f"no Dask scheduler at {address}: {error}") from None
    with client:
        yield Cluster(client)
