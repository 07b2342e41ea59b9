"""The pages of ``fusionscope report`` and of ``study``: each one file that needs neither a network
nor a server.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fusionscope.compare.difference import Difference
from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import to_data
from fusionscope.facts.result import Explanation, ModuleFacts, Operation
from fusionscope.findings import sheets_of
from fusionscope.page.fusion_graph import FusionGraph, GraphStage, ends_of
from fusionscope.page.layout import Box, Layout, Spot, lay_out
from fusionscope.page.report_facts import DifferenceFacts, ReportFacts, SourceLines
from fusionscope.report import study, survey
from fusionscope.report.curves import to_svg
from fusionscope.report.difference import module_sections, same_lines
from fusionscope.report.documents.form import form_of
from fusionscope.report.documents.report import Document
from fusionscope.rules.facts import RuleFacts
from fusionscope.study.curves import curves_of
from fusionscope.study.study import StudyResult
from fusionscope.survey.fleet import Fleet
from fusionscope.system.files import read_text
from fusionscope.words.section import Section
from fusionscope.words.text import size

if TYPE_CHECKING:
    from jinja2 import Template

_NO_TEMPLATES = "the page needs jinja2: pip install 'fusionscope[report]'"
_FINDINGS = (
    "memory", "libraries", "movements", "resources", "recomputed", "autotuned", "compile_time",
)  # fmt: skip
_MOST_ENTRIES = 20  # of each list of a finding
_MOST_CHANGES = 200  # of each list of what differs
_SCRIPTS = (
    "dom.js", "state.js", "table.js", "bars.js", "flame.js", "graph.js", "overview.js",
    "sections.js", "panels.js", "page.js",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Picture:
    """The graph of a module with positions, as ``documents.report.Picture`` describes it."""

    nodes: tuple[Operation, ...]
    stages: tuple[GraphStage, ...]
    quiet: int
    boxes: tuple[Box, ...]
    spots: tuple[Spot, ...]
    pairs: tuple[int, ...]
    kernels: tuple[int, ...]
    apart: Sequence[tuple[int, int, int]]
    notes: tuple[str, ...]


def _picture(module: ModuleFacts, graph: FusionGraph, layout: Layout) -> Picture:
    return Picture(
        nodes=graph.nodes,
        stages=graph.stages,
        quiet=graph.quiet,
        boxes=layout.boxes,
        spots=layout.spots,
        pairs=tuple(end for ends in ends_of(graph, module.pairs) for end in ends or (-1, -1)),
        kernels=tuple(graph.kernels.get(kernel.name, -1) for kernel in module.kernels),
        apart=sorted(graph.apart),
        notes=graph.notes,
    )


@dataclass(frozen=True, slots=True)
class _Side:
    explanation: Explanation
    pictures: Sequence[Picture | None]
    tried: Sequence[list[Section]]
    findings: Sequence[list[Section]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """What ``documents.report.Document`` shows."""

    now: _Side
    before: _Side | None
    difference: Difference | None
    changes: Sequence[list[Section]] = ()
    same: Sequence[str] = ()
    rules: Sequence[RuleFacts]
    sources: Sequence[SourceLines]


def report_page(facts: ReportFacts) -> str:
    """Return the page about one dump. Raises ``UnusableInput`` if jinja2 is not installed."""
    layouts = [None if graph is None else lay_out(graph) for graph in facts.graphs]
    data = _Data(
        now=_side(facts, layouts),
        before=None,
        difference=None,
        rules=facts.rules,
        sources=facts.sources,
    )
    return _render(data, facts.explanation.modules[0].name)


def pages_by_module(facts: ReportFacts) -> dict[str, str]:
    """Return a page for each module by its file name, and ``index.html``, which leads to them.
    Raises ``UnusableInput`` if jinja2 is not installed.
    """
    modules = facts.explanation.modules
    names = [f"module-{place}.html" for place in range(1, len(modules) + 1)]
    style = _asset("page.css")
    index = _template("index.html").render(
        path=facts.explanation.path,
        pages=list(zip(names, modules, strict=True)),
        size=size,
        style=style,
        style_hash=_hash(style),
    )
    pages = {
        name: report_page(
            replace(
                facts,
                explanation=replace(facts.explanation, modules=(module,)),
                graphs=(graph,),
            )
        )
        for name, module, graph in zip(names, modules, facts.graphs, strict=True)
    }
    return {"index.html": index, **pages}


def difference_page(facts: DifferenceFacts) -> str:
    """Return the page about two dumps. Raises ``UnusableInput`` if jinja2 is not installed."""
    layouts = [
        None if now is None or before is None else lay_out(now, before)
        for now, before in zip(facts.after.graphs, facts.before.graphs, strict=True)
    ]
    rules = {page.id: page for page in (*facts.after.rules, *facts.before.rules)}
    data = _Data(
        now=_side(facts.after, layouts),
        before=_side(facts.before, layouts),
        difference=facts.difference,
        changes=[list(module_sections(item, _MOST_CHANGES)) for item in facts.difference.modules],
        same=same_lines(facts.difference),
        rules=tuple(rules.values()),
        sources=facts.after.sources,
    )
    return _render(data, f"{facts.after.explanation.modules[0].name}, before and after")


def _side(facts: ReportFacts, layouts: Sequence[Layout | None]) -> _Side:
    pictures = [
        None if graph is None or layout is None else _picture(module, graph, layout)
        for module, graph, layout in zip(
            facts.explanation.modules, facts.graphs, layouts, strict=True
        )
    ]
    modules = facts.explanation.modules
    advice = [list(_advice(module)) for module in modules]
    findings = [list(sheets_of(_FINDINGS, module, _MOST_ENTRIES)) for module in modules]
    return _Side(facts.explanation, pictures, advice, findings)


def _advice(module: ModuleFacts) -> Iterator[Section]:
    for section in sheets_of(("headroom", "opportunities"), module, _MOST_ENTRIES):
        yield replace(section, title=section.title or "What limits it")
    yield from sheets_of(("suggestions",), module, None)


def study_page(result: StudyResult) -> str:
    """Return the page about a study, without a script. Raises ``UnusableInput`` if jinja2 is not
    installed.
    """
    style = _asset("page.css")
    return _template("study.html").render(
        title=result.study.title,
        what={step.name: step.what for step in result.study.steps},
        figures=[(curves, to_svg(curves)) for curves in curves_of(result)],
        sections=[*study.tables_of(result), study.notes(result)],
        style=style,
        style_hash=_hash(style),
    )


def fleet_page(fleet: Fleet) -> str:
    """Return the page about a survey, without a script. Raises ``UnusableInput`` if jinja2 is not
    installed.
    """
    style = _asset("page.css")
    return _template("fleet.html").render(
        title=fleet.directory,
        headline=survey.headline(fleet),
        sections=list(survey.tables_of(fleet)),
        style=style,
        style_hash=_hash(style),
    )


def _render(data: _Data, title: str) -> str:
    document = form_of(Document, data)
    packed = gzip.compress(msgspec.json.encode(to_data(document)), 9, mtime=0)
    script, style = "".join(map(_asset, _SCRIPTS)), _asset("page.css")
    return _template("page.html").render(
        title=title,
        data=base64.b64encode(packed).decode("ascii"),
        script=script,
        style=style,
        script_hash=_hash(script),
        style_hash=_hash(style),
    )


def _template(name: str) -> Template:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise UnusableInput(_NO_TEMPLATES) from None

    environment = Environment(
        loader=PackageLoader("fusionscope.report.html", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _asset(name: str) -> str:
    return read_text(Path(__file__).with_name(name))


def _hash(text: str) -> str:
    """Return the source expression that allows an inline script or style by its content."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
