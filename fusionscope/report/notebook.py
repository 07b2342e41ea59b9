"""What a notebook shows of each kind of result."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from fusionscope.compare.difference import Difference, ModuleDifference
from fusionscope.explain import sheets
from fusionscope.facts.result import Explanation, KernelFacts, KernelPage, ModuleFacts, PairFacts
from fusionscope.findings.kernels.page import kernel_sheet
from fusionscope.findings.kernels.page import sheets as kernel_sheets
from fusionscope.findings.refusals.sheet import pair_sheet
from fusionscope.report import difference
from fusionscope.words.section import Section

_TOP = 10  # entries of a list


@singledispatch
def sections_of(result: object) -> Iterable[Section]:
    """Return a result in words."""
    raise TypeError(f"no words for {type(result).__name__}")


@sections_of.register
def _(result: Explanation) -> Iterable[Section]:
    """Return what was asked for: kernels, pairs, or else the first screen."""
    modules = result.modules
    if any(module.kernel_pages for module in modules):
        return sheets.kernel_pages(result, _TOP)
    if any(len(module.pairs) < sum(module.summary.outcomes.values()) for module in modules):
        return sheets.selected(result, _TOP)
    return sheets.overview(result)


@sections_of.register
def _(result: ModuleFacts) -> Iterable[Section]:
    return sheets.essentials(result)


@sections_of.register
def _(result: PairFacts) -> Iterable[Section]:
    return [pair_sheet(result)]


@sections_of.register
def _(result: KernelFacts) -> Iterable[Section]:
    return [kernel_sheet(result)]


@sections_of.register
def _(result: KernelPage) -> Iterable[Section]:
    return kernel_sheets(result, _TOP)


@sections_of.register
def _(result: Difference) -> Iterable[Section]:
    return difference.sections_of(result, _TOP)


@sections_of.register
def _(result: ModuleDifference) -> Iterable[Section]:
    return difference.module_sections(result, _TOP)
