"""Known faults of the compiler: results that are wrong, or no results.

Each was reported in public, and compiled or run with the releases that it names and with those
around them, but for what only a GPU shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from fusionscope.graph.mutable import backend_kind_of
from fusionscope.hlo import Instruction, Module
from fusionscope.hlo.search import reachable


@dataclass(frozen=True, slots=True)
class Fault:
    """``find`` yields the kernels of a final module that are concerned, given the program before
    libraries got their share, if the dump has it. ``is_shown`` is whether that proves the fault,
    whatever the release; else releases from ``since`` to the one before ``fixed_in`` have it.
    """

    id: str
    title: str
    thread: str
    since: str
    fixed_in: str
    workaround: str
    find: Callable[[Module, Module | None], Iterator[Instruction]]
    is_shown: bool = False

    def is_in(self, version: str) -> bool:
        """Return whether a release of jaxlib, such as ``0.12.0.1``, has the fault."""
        return number_of(self.since) <= number_of(version) < number_of(self.fixed_in)


def number_of(version: str) -> tuple[int, ...]:
    """Return the numbers with which a version begins, for comparisons."""
    return tuple(int(part) for part in takewhile(str.isdecimal, version.split(".")))


def fusions_of(final: Module, kind: str) -> Iterator[tuple[Instruction, list[Instruction]]]:
    """Yield the fusions of a ``kind``, with their instructions, callees of fusions included."""
    for fusion in final.walk():
        if fusion.opcode != "fusion" or not fusion.called:
            continue
        if (backend_kind_of(fusion.attribute("backend_config")) or "").startswith(kind):
            bodies = reachable([fusion.called[0]], lambda computation: computation.calls)
            yield fusion, [instruction for body in bodies for instruction in body.instructions]
