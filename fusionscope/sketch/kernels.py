"""The kernels that a name or a pair stands for."""

from __future__ import annotations

from fnmatch import fnmatchcase

from fusionscope.dump import DumpedModule
from fusionscope.facts.pair_names import names_end
from fusionscope.history.kernels import find_kernels
from fusionscope.history.outcomes import find_pairs
from fusionscope.history.values import Numbering
from fusionscope.hlo.search import reachable


def named_kernels(module: DumpedModule, pattern: str) -> tuple[str, ...]:
    """Return the names of the kernels of the final module with this name, with ``*`` and ``?``."""
    assert module.final is not None
    after = Numbering().number(module.read(module.final))
    return tuple(
        dict.fromkeys(
            kernel.name
            for kernel in find_kernels(after, module.backend)
            if fnmatchcase(kernel.name, pattern)
        )
    )


def kernels_of_pair(module: DumpedModule, pair: str) -> tuple[str, ...]:
    """Return the names of the kernels that compute the first pair before fusion that is like
    ``pair``, ``P -> C``; nothing if there is none.
    """
    producer, consumer = (name.strip() for name in pair.split("->", 1))
    return PairKernels(module).of(producer, consumer)


class PairKernels:
    """Which kernels of a module with a final stage compute a pair before fusion: those with its
    consumer, and those with its producer which they read.
    """

    def __init__(self, module: DumpedModule) -> None:
        assert module.final is not None
        numbering = Numbering()
        start = module.stages.index(module.pre_fusion) if module.pre_fusion in module.stages else 0
        before, *later = [numbering.number(module.read(stage)) for stage in module.stages[start:]]
        after = later[-1] if later else before
        self._pairs = find_pairs(before, [("after", after)])
        self._values = {i: value for execution in before.executions for i, value in execution.steps}
        self._kernels = list(find_kernels(after, module.backend))

    def of(self, producer: str, consumer: str) -> tuple[str, ...]:
        """Return the names of the kernels of the first pair with such ends."""
        first = next(
            (
                candidate
                for candidate in self._pairs
                if names_end(producer, candidate.producer)
                and names_end(consumer, candidate.consumer)
            ),
            None,
        )
        if first is None:
            return ()
        produced, consumed = self._values[first.producer], self._values[first.consumer]
        with_consumer = [kernel for kernel in self._kernels if consumed in kernel.values]
        read = {
            *reachable(
                [kernel.instruction for kernel in with_consumer], lambda reader: reader.operands
            )
        }
        with_producer = [
            kernel
            for kernel in self._kernels
            if produced in kernel.values and kernel.instruction in read
        ]
        return tuple(dict.fromkeys(kernel.name for kernel in (*with_producer, *with_consumer)))
