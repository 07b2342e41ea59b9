"""Flags that are tried without ``--compile``: on GPUs the one that splits no product, for the
products that the compiler splits, on TPUs the limit of the vector memory of a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fusionscope.advise.candidates import Candidate, flag_candidates
from fusionscope.advise.recipes.recipe import prepare
from fusionscope.advise.recipes.regions import Part, cut_parts, is_small
from fusionscope.dump import DumpedModule
from fusionscope.facts.result import PairFacts
from fusionscope.facts.suggestions import Figures, HowTried, Suggestion
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.hlo import Instruction, Module
from fusionscope.passes.causes import SplitSum
from fusionscope.reasons.causes import adds_up_parts
from fusionscope.rerun.programs import require_final

_FLAGS = {"gpu": "xla_gpu_experimental_force_split_k", "tpu": "xla_tpu_scoped_vmem_limit_kib"}
_PRODUCTS = frozenset({"convolution", "dot"})


@dataclass(frozen=True, slots=True)
class FlagOffer:
    """A flag for the products with the framework's names ``op_names``. ``sums`` is the number of
    operations in the final module that add up their parts; with none, the flag is for all of it.
    """

    candidate: Candidate
    op_names: frozenset[str]
    sums: int

    @property
    def flags(self) -> tuple[str, ...]:
        return (self.candidate.change,)

    def suggestion(
        self, how: HowTried, refused: Iterable[PairFacts], before: Figures, after: Figures
    ) -> Suggestion:
        """Return what came of the flag. It concerns those of ``refused`` that are not fused because
        a product is split.
        """
        ends = {
            (pair.producer.name, pair.consumer.name)
            for pair in refused
            if pair.reason == SplitSum.id
        }
        return Suggestion(
            number=0,
            kind=self.candidate.kind,
            change=self.candidate.change,
            evidence=how,
            pairs=tuple(sorted(ends)),
            before=before,
            after=after,
        )

    def partitions(self, program: Module) -> Iterator[list[Part]]:
        """Yield all of ``program``, a result of ``prepare``; then what is around its split
        products, if each of them is found there, and less than all of it.
        """
        yield [Part(program)]
        if not self.sums:
            return
        graph = prepare(program)
        places = list(self._places(graph))
        if {place.op_name for place in places} == self.op_names:
            parts = cut_parts(graph, places)
            if not is_small(program, parts):
                yield parts

    def _places(self, graph: MutableModule) -> Iterator[MutableInstruction]:
        for instruction in graph.walk():
            if instruction.opcode in _PRODUCTS and instruction.op_name in self.op_names:
                yield instruction


def find_flag_offers(module: DumpedModule) -> list[FlagOffer]:
    """Return the flag of a GPU if the compiler splits products of ``module``, that of a TPU with
    each of its values. Raises ``UnusableInput`` if the dump lacks the final module.
    """
    sums = list(sums_of_parts(require_final(module))) if module.backend == "gpu" else []
    names = frozenset(operation.op_name or "" for operation in sums)
    if (not sums and module.backend != "tpu") or "" in names:
        return []
    flag = _FLAGS.get(module.backend or "")
    candidates = (turn for turn in flag_candidates(module) if flag in turn.flags)
    return [FlagOffer(candidate, names, len(sums)) for candidate in candidates]


def sums_of_parts(module: Module) -> Iterator[Instruction]:
    """Return the operations that add up the parts of products that the compiler split."""
    return filter(is_sum_of_parts, module.walk())


def is_sum_of_parts(operation: Instruction) -> bool:
    """Return whether it adds up the parts of a product that the compiler split."""
    return operation.opcode == "reduce" and adds_up_parts(operation)
