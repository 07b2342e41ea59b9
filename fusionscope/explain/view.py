"""Shows the part of an analysis that a selection asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from fusionscope.explain.close_matches import near_matches
from fusionscope.explain.selection import Selection, has_op_name, select_pairs
from fusionscope.facts.module_analysis import Analysis
from fusionscope.facts.result import Breakdown, KernelFacts, KernelPage, ModuleFacts, PairFacts
from fusionscope.findings.breakdown.find import break_down
from fusionscope.findings.libraries.facts import Boundary
from fusionscope.findings.libraries.neighbours import with_members
from fusionscope.findings.opportunities.parts import with_parts
from fusionscope.findings.opportunities.twice import with_values_of_gradients
from fusionscope.findings.resources.facts import OverFused, Resources

_NEAR = 4


def view(analysis: Analysis, selection: Selection) -> ModuleFacts:
    """Return the facts about the selected pairs and kernels of a module."""
    whole = analysis.facts
    pairs = whole.pairs
    near: tuple[str, ...] = ()
    pages: tuple[KernelPage, ...] = ()
    if selection.picks_pairs:
        pairs = tuple(whole.pairs[number] for number in select_pairs(analysis, selection))
        near = () if pairs else near_matches(analysis, selection)
    if selection.kernel is not None:
        pages = _kernel_pages(analysis, selection.kernel)
        near = near if pages else _near_kernels(analysis, selection.kernel)
    facts = replace(
        whole,
        kernels=tuple(sorted(whole.kernels, key=_weight)),
        pairs=_costliest_first(pairs),
        breakdown=_break_down(analysis, selection),
        near=near,
        kernel_pages=pages,
    )
    if selection.op_name is None and facts.breakdown is not None:
        facts = with_parts(facts, facts.breakdown, whole)
    facts = with_values_of_gradients(facts)
    boundaries = with_members(whole.find_all(Boundary), whole.kernels)
    return facts.with_finding(Boundary, boundaries)


def _weight(kernel: KernelFacts) -> tuple[float, int]:
    """Return the sort key of kernels: by measured time, where there is a trace, else by bytes."""
    return -(kernel.measured_us or 0.0), -kernel.bytes_moved


def with_resources(facts: ModuleFacts, resources: Resources) -> ModuleFacts:
    """Return ``facts`` with what each kernel takes of the GPU, and what could be changed."""

    kernels = tuple(
        replace(kernel, resources=resources.found.get(kernel.name)) for kernel in facts.kernels
    )
    facts = replace(facts, kernels=kernels)
    if resources.over_fused is None:
        return facts
    return facts.with_finding(OverFused, resources.over_fused)


def _break_down(analysis: Analysis, selection: Selection) -> Breakdown:
    """Break down the kernels and pairs with the requested operation name."""
    pattern = selection.op_name
    kernels: Sequence[int] = range(len(analysis.kernels))
    pairs: Sequence[int] = range(len(analysis.pairs))
    if pattern is not None:
        origins = [analysis.origins[kernel.origin].op_name for kernel in analysis.kernels]
        kernels = [kernel for kernel in kernels if has_op_name(origins[kernel], pattern)]
        producers = [pair.producer.op_name for pair in analysis.facts.pairs]
        pairs = [pair for pair in pairs if has_op_name(producers[pair], pattern)]
    return break_down(analysis, kernels, pairs, selection.by, selection.sorted_by)


def _kernel_pages(analysis: Analysis, name: str) -> tuple[KernelPage, ...]:
    """Return the kernels whose name matches ``name``, a shell glob."""
    return tuple(
        KernelPage(
            kernel=facts,
            inputs=details.inputs,
            outputs=details.outputs,
            hlo=details.hlo,
            sources=details.sources,
            began=_refused(analysis, details.began),
            ended=_refused(analysis, details.ended),
        )
        for details, facts in zip(analysis.kernels, analysis.facts.kernels, strict=True)
        if fnmatchcase(facts.name, name.lstrip("%"))
    )


def _refused(analysis: Analysis, numbers: Sequence[int]) -> tuple[PairFacts, ...]:
    return _costliest_first(analysis.facts.pairs[number] for number in numbers)


def _costliest_first(pairs: Iterable[PairFacts]) -> tuple[PairFacts, ...]:
    return tuple(sorted(pairs, key=lambda pair: -pair.bytes_saved))


def _near_kernels(analysis: Analysis, name: str) -> tuple[str, ...]:
    """Return the names nearest to ``name``."""
    names = [kernel.name for kernel in analysis.facts.kernels]
    return tuple(get_close_matches(name.strip("*%"), names, _NEAR, 0.4) or names[:_NEAR])
