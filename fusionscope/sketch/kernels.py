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
    ``pair``, ``P -> C``: those with its consumer, and those with its producer which they read.
    """
    assert module.final is not None
    producer, consumer = (name.strip() for name in pair.split("->", 1))
    numbering = Numbering()
    start = module.stages.index(module.pre_fusion) if module.pre_fusion in module.stages else 0
    before, *later = [numbering.number(module.read(stage)) for stage in module.stages[start:]]
    after = later[-1] if later else before
    first = next(
        (
            candidate
            for candidate in find_pairs(before, [("after", after)])
            if names_end(producer, candidate.producer) and names_end(consumer, candidate.consumer)
        ),
        None,
    )
    if first is None:
        return ()
    values = {i: value for execution in before.executions for i, value in execution.steps}
    kernels = list(find_kernels(after, module.backend))
    with_consumer = [k for k in kernels if values[first.consumer] in k.values]
    read = {
        *reachable([kernel.instruction for kernel in with_consumer], lambda reader: reader.operands)
    }
    with_producer = [
        k for k in kernels if values[first.producer] in k.values and k.instruction in read
    ]
    return tuple(dict.fromkeys(kernel.name for kernel in (*with_producer, *with_consumer)))
