"""The JSON output of ``fusionscope explain``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import defstruct

from fusionscope.facts import result
from fusionscope.facts import suggestions as suggestion
from fusionscope.facts.result import (
    Branch,
    ChangedKernel,
    ChangedPair,
    CostFacts,
    GraphLaunches,
    Grouping,
    KernelFacts,
    KernelInput,
    KernelOutput,
    Limit,
    LoopRow,
    ModuleFacts,
)
from fusionscope.facts.suggestions import HowTried, SuggestionKind
from fusionscope.findings import fields_of_module
from fusionscope.history.outcomes import Outcome
from fusionscope.report.documents.form import At, Form
from fusionscope.verify.agreement import RulesUsed


def _answers(module: ModuleFacts) -> Sequence[object]:
    """Return the answers, each with all suggestions."""
    suggestions = module.suggestions
    return (
        [(suggestions, answer) for answer in suggestions.answers] if suggestions is not None else []
    )


def _numbers(kind: str) -> Callable[[tuple[suggestion.Suggestions, suggestion.Answer]], list[int]]:
    """Return the numbers of the suggestions of one kind that fuse one of the pairs of an answer."""

    def find(about: tuple[suggestion.Suggestions, suggestion.Answer]) -> list[int]:
        suggestions, answer = about
        group = getattr(suggestions, kind)
        return [item.number for item in group if not set(answer.pairs).isdisjoint(item.pairs)]

    return find


def _figures(name: str) -> Callable[[suggestion.Suggestion], suggestion.Figures | None]:
    """Return nothing for a recipe that was not tried."""
    return lambda suggestion_tried: (
        None if suggestion_tried.evidence is HowTried.UNTRIED else getattr(suggestion_tried, name)
    )


def command_of(suggestion_tried: suggestion.Suggestion | suggestion.Together) -> str:
    """Return the command line for a shell."""
    return shlex.join(suggestion_tried.command)


def _suggestions(kind: str) -> Callable[[ModuleFacts], Sequence[object]]:
    """Return nothing if nothing was tried."""
    return lambda module: getattr(module.suggestions, kind) if module.suggestions else ()


class PairEnd(Form):
    """The producer or the consumer of a pair."""

    name: str
    opcode: str
    shape: str
    op_name: str | None


class PairSource(Form):
    producer: Annotated[str | None, At("producer.source")]
    consumer: Annotated[str | None, At("consumer.source")]


class FusedByLaterPass(Form):
    """The refusal of a pass before the one that fused the pair."""

    reason: str
    message: str | None
    evidence: str | None
    numbers: dict[str, int | str]
    by: str


class Pair(Form):
    """A producer and one consumer that reads it, in the stage before fusion."""

    producer: PairEnd
    consumer: PairEnd
    computation: str
    outcome: Outcome
    kernel: str | None
    stage: str | None
    reason: str | None
    message: str | None
    evidence: str | None
    numbers: dict[str, int | str]
    pass_: Annotated[str | None, At("decided_by")]
    otherwise: str | None
    bytes_saved: int
    source: Annotated[PairSource, At()]
    cost: CostFacts | None
    fused_by_later_pass: FusedByLaterPass | None


class Border(Form):
    """A refused pair at the border of a kernel."""

    producer: Annotated[str, At("producer.name")]
    consumer: Annotated[str, At("consumer.name")]
    reason: str | None
    bytes_saved: int


class KernelPage(Form):
    """One kernel by itself."""

    name: Annotated[str, At("kernel.name")]
    inputs: list[KernelInput]
    outputs: list[KernelOutput]
    hlo: list[str]
    sources: list[str]
    began: list[Border]
    ended: list[Border]


class BranchRow(Form):
    """A branch of the tree, followed by the branches below it."""

    path: Annotated[list[str], At("0")]
    count: Annotated[int, At("1.count")]
    launches: Annotated[int, At("1.launches")]
    bytes_moved: Annotated[int, At("1.bytes_moved")]
    time_us: Annotated[float, At("1.time_us")]
    refused_bytes: Annotated[int, At("1.refused_bytes")]
    spill_bytes: Annotated[int | None, At("1.spill_bytes")]
    at_best_us: Annotated[float | None, At("1.at_best_us")]
    limited_by: Annotated[Limit | None, At("1.limited_by")]


def _rows(breakdown: result.Breakdown) -> Iterator[tuple[tuple[str, ...], Branch]]:
    pending: list[tuple[tuple[str, ...], Branch]] = [
        ((child.name,), child) for child in reversed(breakdown.tree.children)
    ]
    while pending:
        path, branch = pending.pop()
        yield path, branch
        pending += (((*path, child.name), child) for child in reversed(branch.children))


class Breakdown(Form):
    """The launches, bytes and time by part."""

    by: Grouping
    rows: Annotated[list[BranchRow], At(_rows)]


class ChangedFigure(Form):
    before: Annotated[int, At("0")]
    after: Annotated[int, At("1")]


class Figures(Form):
    """The cost of one run of the final module."""

    launches: int
    bytes: Annotated[int, At("bytes_moved")]
    time_us: float | None


class ChangedTime(Form):
    before: Annotated[float, At("0")]
    after: Annotated[float, At("1")]


def _changed_time(change: result.WhatIf) -> tuple[float, float] | None:
    times = change.before.time_us, change.after.time_us
    return None if times[0] is None or times[1] is None else (times[0], times[1])


class ChangedFigures(Form):
    before: Annotated[Figures, At("0")]
    after: Annotated[Figures, At("1")]


class WhatIf(Form):
    """The effect of changed rules, or of another GPU."""

    changes: str
    launches: Annotated[
        ChangedFigure, At(lambda tried: (tried.before.launches, tried.after.launches))
    ]
    bytes_moved: Annotated[
        ChangedFigure, At(lambda tried: (tried.before.bytes_moved, tried.after.bytes_moved))
    ]
    time_us: Annotated[ChangedTime | None, At(_changed_time)]
    final: ChangedFigures | None
    peak_bytes: Annotated[ChangedFigure | None, At("peak")]
    gone: list[ChangedKernel]
    made: list[ChangedKernel]
    pairs: list[ChangedPair]
    guess: Annotated[bool, At("is_guess")]
    notes: list[str]


class FusedPair(Form):
    producer: Annotated[str, At("0")]
    consumer: Annotated[str, At("1")]


class Suggestion(Form):
    """A change that was tried, and its result."""

    number: int
    kind: SuggestionKind
    change: str
    evidence: HowTried
    pairs: list[FusedPair]
    before: Annotated[Figures | None, At(_figures("before"))]
    after: Annotated[Figures | None, At(_figures("after"))]
    title: str
    recipe: str
    sources: list[str]
    removes: list[str]
    keeps: list[str]
    why_not: str | None
    command: Annotated[str | None, At(command_of)]


class TogetherStep(Form):
    """A suggestion beside those before it."""

    number: int
    after: Figures


class ExcludedSuggestion(Form):
    number: int
    why: str


class Together(Form):
    """The best suggestions together."""

    steps: list[TogetherStep]
    excluded: list[ExcludedSuggestion]
    before: Figures
    after: Figures
    evidence: HowTried
    command: Annotated[str | None, At(command_of)]


class Answer(Form):
    """What is known to help against one of the costliest kinds of refusals."""

    pairs: Annotated[list[FusedPair], At("1.pairs")]
    suggestions: Annotated[list[int], At(_numbers("helpful"))]
    unmeasured: Annotated[list[int], At(_numbers("unmeasured"))]
    rejected: Annotated[list[int], At(_numbers("rejected"))]
    in_vain: Annotated[list[str], At("1.in_vain")]
    untried: Annotated[int, At("1.untried")]
    why: Annotated[str | None, At("1.why")]


class ModuleForm(Form):
    """What is not a finding."""

    name: str
    number: int
    backend: str | None
    device: str | None
    flags: list[str]
    rules: RulesUsed | None
    stages: result.Stages
    summary: result.Summary
    kernels: list[KernelFacts]
    pairs: list[Pair]
    near: list[str]
    kernel_pages: list[KernelPage]
    breakdown: Annotated[Breakdown | None, At("breakdown")]
    notes: list[str]
    loops: list[LoopRow]
    graphs: GraphLaunches | None
    what_if: WhatIf | None
    suggestions: Annotated[list[Suggestion], At(_suggestions("helpful"))]
    unmeasured: Annotated[list[Suggestion], At(_suggestions("unmeasured"))]
    rejected: Annotated[list[Suggestion], At(_suggestions("rejected"))]
    untried: Annotated[
        int, At(lambda module: module.suggestions.untried if module.suggestions else 0)
    ]
    together: Annotated[
        Together | None, At(lambda module: module.suggestions and module.suggestions.together)
    ]
    answers: Annotated[list[Answer], At(_answers)]


def _field(name: str, kind: Any, default: Any) -> tuple[str, Any]:
    return name, Annotated[kind, At(lambda module: module.findings.get(name, default))]


_FOUND = fields_of_module()
Module = defstruct(
    "Module",
    [_field(field.name, field.type, field.default) for field in msgspec.structs.fields(_FOUND)],
    bases=(ModuleForm,),
    namespace={"__doc__": _FOUND.__doc__},
)


class ModuleRow(Form):
    """The cost of one module."""

    name: str
    number: int
    device: str
    launches: int
    bytes_moved: int
    time_us: float | None
    refused_bytes: int | None
    helper: Annotated[bool, At("is_helper")]


Document = defstruct(
    "Document",
    [
        ("path", str),
        ("modules", list[Module]),  # type: ignore[valid-type]
        ("folded", list[ModuleRow]),
        ("problems", list[str]),
    ],
    bases=(Form,),
    tag_field="schema",
    tag="fusionscope.explain/1",
)
