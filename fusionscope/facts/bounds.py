"""Lower bounds of the time of sets of kernels, in the model of the time.

The bound of a set is what one kernel would take that does the same: a launch, and the longer of
reading and writing what enters and leaves it, each value once, and of computing its products and
convolutions at the peak rate of their type. A value of which only a part is read counts with that
part, and one that is only converted to a narrower type with that type.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import fsum

from fusionscope.facts.limits import Limits


class Decides(StrEnum):
    """What determines a bound."""

    LAUNCH = "launch"
    BYTES = "bytes"
    OPERATIONS = "operations"


@dataclass(frozen=True, slots=True)
class Bound:
    """The least microseconds that a set of kernels can take in a run, the bytes that enter and
    leave it, and what determines the time.
    """

    time_us: float
    bytes: float
    decides: Decides


@dataclass(frozen=True, slots=True)
class Handed:
    """A value that passes between launches: its place, its maker, the bytes that this writes of it
    in a run, and the bytes that each reader needs of it.
    """

    place: int
    maker: int
    bytes_written: float
    readers: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Product:
    """The products of a launch: the microseconds that they take at the peak rate in a run. Those of
    one ``key`` are equal.
    """

    key: int
    time_us: float


@dataclass(frozen=True)
class Bounds:
    """What bounds the time of kernels: their limits, the values that they hand on, and their
    products, None for a kernel without. All kernels are in the order of the module, and ``running``
    are the numbers of those that run at all.
    """

    launch_us: float
    bytes_per_us: float
    limits: tuple[Limits, ...]
    running: frozenset[int]
    handed: tuple[Handed, ...]
    products: tuple[Product | None, ...]

    def at_best(self, kernels: Iterable[int]) -> Bound:
        """Return the bound of the kernels with these numbers, at most the time that they take: a
        copy may take none, beside others.
        """
        members = self.running.intersection(kernels)
        if not members:
            return Bound(0.0, 0.0, Decides.LAUNCH)
        size = self.bytes_of(members)
        times = (self.launch_us, size / self.bytes_per_us, self.computing(members))
        decides = (Decides.LAUNCH, Decides.BYTES, Decides.OPERATIONS)[times.index(max(times))]
        total = fsum(self.limits[kernel].total for kernel in members)
        return Bound(min(self.launch_us + max(times[1:]), total), size, decides)

    def bytes_of(self, members: frozenset[int]) -> float:
        """Return the bytes that enter and leave a set of kernels in a run."""
        values = {value for kernel in members for value in self._touched[kernel]}
        return fsum(self.crossing(self.handed[value], members) for value in values)

    @staticmethod
    def crossing(value: Handed, members: frozenset[int]) -> float:
        """Return the bytes of a value that enter or leave a set of kernels."""
        is_inside = value.maker in members
        sizes = [size for reader, size in value.readers if (reader in members) is not is_inside]
        most = max(sizes, default=0.0)
        return min(most, value.bytes_written) if is_inside else most

    def computing(self, members: frozenset[int]) -> float:
        """Return the microseconds in which all their products are computed at the peak rate."""
        products = [self.products[kernel] for kernel in members]
        return fsum({p.key: p.time_us for p in products if p is not None}.values())

    @cached_property
    def _touched(self) -> dict[int, list[int]]:
        """The numbers of the values that each kernel makes or reads."""
        touched: dict[int, list[int]] = defaultdict(list)
        for number, value in enumerate(self.handed):
            for kernel in {value.maker, *(reader for reader, _ in value.readers)}:
                touched[kernel].append(number)  # also those of -1, what is outside of all kernels
        return touched
