"""Launches as the host sees them: many kernels are one launch of a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusionscope.dump import DumpedModule
from fusionscope.facts.result import GraphLaunches, KernelFacts


def find_graphs(module: DumpedModule, kernels: Sequence[KernelFacts]) -> GraphLaunches | None:
    """Return how the host launches ``kernels``, None if no command buffer is in the dump.

    Raises ``UnusableInput`` if a file on thunks cannot be read.
    """
    buffers = module.command_buffers
    if not buffers:
        return None
    names = module.thunk_instructions
    runs = {kernel.name: kernel.launches for kernel in kernels}

    def runs_of(thunks: Iterable[int]) -> list[int]:
        graph_names = dict.fromkeys(
            names.get(thunk) for thunk in thunks
        )  # one may have several thunks
        return [runs[name] for name in graph_names if name in runs]

    graphs = launches = 0
    for buffer in buffers:
        runs_held = runs_of(buffer.thunks)
        graphs += min(runs_of(buffer.direct) or runs_held, default=0)
        launches += sum(runs_held)
    return GraphLaunches(graphs, launches) if launches else None
