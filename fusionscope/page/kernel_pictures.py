"""Kernels of a dump that a name selects, with those around them."""

from __future__ import annotations

from dataclasses import dataclass

from fusionscope.dump import Dump
from fusionscope.dump.cache import DumpCache
from fusionscope.errors import UnusableInput, quoted
from fusionscope.explain import Selection, explain, sheets
from fusionscope.facts.result import KernelPage
from fusionscope.page.fusion_graph import fusion_graph
from fusionscope.page.kernel_neighbourhood import Neighbourhood, find_neighbourhood
from fusionscope.page.report_facts import dumped
from fusionscope.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class KernelPicture:
    """The ``pages`` of the kernels, and the graph in which they are chosen."""

    pages: tuple[KernelPage, ...]
    neighbourhood: Neighbourhood


def kernel_picture(
    dump: Dump,
    kernel: str,
    *,
    module: str | None = None,
    radius: int = 1,
    progress: Progress = silent,
    cache: DumpCache | None = None,
) -> KernelPicture:
    """Return the kernels that match the glob ``kernel``, of the first module that has any, and
    those up to ``radius`` kernels away. Raises ``UnusableInput`` if there is none.
    """
    selection = Selection(module=module, kernel=kernel)
    explanation = explain(dump, selection, progress=progress, cache=cache)
    facts = next((module for module in explanation.modules if module.kernel_pages), None)
    if facts is None:
        raise UnusableInput(sheets.unmatched(explanation, f"the kernel {quoted(kernel)}"))
    names = {page.kernel.name for page in facts.kernel_pages}
    graph = fusion_graph(dumped(dump, facts), progress=progress)
    return KernelPicture(facts.kernel_pages, find_neighbourhood(graph, facts, names, radius))
