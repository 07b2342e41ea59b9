"""Predicts the launches, bytes and time of the final module from the module after fusion."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import isclose
from typing import NamedTuple

from fusionscope.facts.suggestions import Figures
from fusionscope.facts.times import count_figures
from fusionscope.gpu.buffer_sharing import sharing_on
from fusionscope.graph.buffer_sharing import may_share
from fusionscope.graph.buffers import walk_control_flow
from fusionscope.graph.cleanup import clean_up, remove_copies
from fusionscope.graph.loop_functions import with_functions
from fusionscope.graph.memory_reuse import Sharing
from fusionscope.graph.mutable import MutableInstruction, MutableModule, to_module
from fusionscope.history.loops import NOTHING_MORE, LoopFacts
from fusionscope.hlo import Module
from fusionscope.passes.context import GpuTarget
from fusionscope.what_if.copies import Copies, Part, copied_parts, insert_copies


class Predicted(NamedTuple):
    """``is_certain`` is false if the compiler would insert other copies than into the module of the
    dump, or other kernels read the results of conditionals, whose copies are not predicted, and the
    copies of the dump are not as predicted either. The same holds if copies depend on the order of
    more kernels than in the dump: that of the same kernels is assumed to stay as it is there. The
    figures may be wrong then.
    ``is_time_certain`` is false if a pass after fusion changes the code of kernels, and with it the
    estimated time, as it may do otherwise with the change.
    """

    figures: Figures
    is_certain: bool
    is_time_certain: bool = True


@dataclass(frozen=True, slots=True)
class _WithCopies:
    """What is copied after fusion, which results of conditionals each kernel reads, and the figures
    of the module with these copies.
    """

    copies: Copies
    branched: Counter[frozenset[int]]
    figures: Figures


@dataclass(frozen=True)
class FinalFigures:
    """Later passes are assumed to do the same as in the dump, except for copies, which depend on
    what was fused.

    ``final`` is the final module of the dump, with its ``figures`` if they are known, and ``after``
    its module after fusion. ``is_copied`` is whether ``after`` has the compiler's copies already,
    ``loops`` are the facts about the loops of the dump, and ``makes_functions`` is whether its
    compiler makes functions of loops of any size.
    """

    final: Module
    after: Module
    backend: str | None
    gpu: GpuTarget | None
    is_copied: bool = False
    figures: Figures | None = None
    loops: LoopFacts = NOTHING_MORE
    makes_functions: bool = False

    def predict(self, changed: Module) -> Predicted:
        """Return the figures of the final module if ``changed`` takes the place of ``after``."""
        was, now = self._own, self._with_copies(changed)
        figures = Figures(
            self.before.launches + now.figures.launches - was.figures.launches,
            self.before.bytes_moved + now.figures.bytes_moved - was.figures.bytes_moved,
            _shifted(self.before.time_us, was.figures.time_us, now.figures.time_us),
        )
        is_same = (now.copies.copied, now.branched) == (was.copies.copied, was.branched)
        left_to_order = now.copies.left_to_order
        if left_to_order:
            is_certain = self._is_known and left_to_order <= was.copies.left_to_order
        else:
            is_certain = self._is_known or is_same
        return Predicted(figures, is_certain, self.explains_time)

    @cached_property
    def before(self) -> Figures:
        """The figures of the final module of the dump."""
        return self.figures or count_figures(self.final, self.backend, self.gpu, self.loops)

    @property
    def can_be_certain(self) -> bool:
        """Whether a prediction can be certain without removing all that is left to the order of
        kernels.
        """
        return self._is_known or not self._own.copies.left_to_order

    @cached_property
    def _is_known(self) -> bool:
        """Whether the module of the dump is as predicted."""
        was = self._own.figures
        return (was.launches, was.bytes_moved) == (self.before.launches, self.before.bytes_moved)

    @property
    def explains_time(self) -> bool:
        """Whether the estimated time after fusion is that of the final module."""
        time, final = self._own.figures.time_us, self.before.time_us
        return time is None or final is None or isclose(time, final, rel_tol=1e-6)

    @cached_property
    def _own(self) -> _WithCopies:
        return self._with_copies(self.after)

    def _insert_copies(self, graph: MutableModule) -> Copies:
        if self.is_copied:
            return Copies(Counter(), Counter())
        sharing: Sharing = may_share
        if self.gpu is not None:
            sharing = sharing_on(self.gpu.device, self.gpu.gpu_model.emitters)
        return insert_copies(graph, self.backend, sharing, lambda: self._copied_parts)

    @cached_property
    def _copied_parts(self) -> frozenset[Part]:
        """What the dump copies: no text shows all that the order of kernels depends on."""
        graph = MutableModule(self.final)
        parts = copied_parts(graph)
        graph.dissolve()
        return parts

    def _with_copies(self, module: Module) -> _WithCopies:
        graph = MutableModule(module)
        is_cleaned = False
        if self.backend == "cpu" and not self.is_copied:
            is_cleaned = remove_copies(graph)
        is_cleaned |= clean_up(graph, self.backend)
        copies = self._insert_copies(graph)
        branched = _readers_of_branches(graph)
        changed = to_module(graph) if is_cleaned or copies.copied else module
        loops = self.loops
        if self.backend == "cpu":
            loops = with_functions(loops, graph, of_any_size=self.makes_functions)
        graph.dissolve()
        figures = count_figures(changed, self.backend, self.gpu, loops)
        return _WithCopies(copies, branched, figures)


def _readers_of_branches(graph: MutableModule) -> Counter[frozenset[int]]:
    """Return which results of a conditional an instruction reads, and how many do so: a result that
    is read after the next one took its place has to be copied.
    """
    readers: Counter[frozenset[int]] = Counter()
    for computation in walk_control_flow(graph):
        for conditional in computation.instructions:
            if conditional.opcode != "conditional":
                continue
            read: dict[MutableInstruction, set[int]] = {}
            for part in conditional.users:
                if part.opcode == "get-tuple-element":
                    for reader in part.users:
                        read.setdefault(reader, set()).add(int(part.attributes["index"]))
            readers.update(map(frozenset, read.values()))
    return readers


def _shifted(final: float | None, was: float | None, now: float | None) -> float | None:
    """Return ``final`` changed by a difference, without its rounding errors if it is all of it."""
    if final is None or was is None or now is None:
        return None
    return now if isclose(final, was, rel_tol=1e-9) else final + now - was
