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
    """The producer or the consumer of a pair.

    name: the instruction
    opcode: its opcode
    shape: its shape with layout; of a tuple of more than 64 elements the first 64, and how many
        more
    op_name: the framework's name of the operation
    """

    name: str
    opcode: str
    shape: str
    op_name: str | None


class PairSource(Form):
    """The user's lines of a pair.

    producer: the user's line for the producer, as ``file:line``
    consumer: the same for the consumer
    """

    producer: Annotated[str | None, At("producer.source")]
    consumer: Annotated[str | None, At("consumer.source")]


class FusedByLaterPass(Form):
    """The refusal of a pass before the one that fused the pair.

    reason: id of the rule
    message: the compiler's own words, with its numbers
    evidence: the source of the reason, as for the pair
    numbers: what the rule looked at, from the replay
    by: the pass that fused it
    """

    reason: str
    message: str | None
    evidence: str | None
    numbers: dict[str, int | str]
    by: str


class Pair(Form):
    """A producer and one consumer that reads it, in the stage before fusion.

    producer: the producer
    consumer: the consumer
    computation: the computation that both are in
    outcome: ``fused``: one kernel computes the producer and, from that, the consumer;
        ``duplicated``: so, and the producer's value is also written or computed elsewhere;
        ``not-fused``; ``gone``: a later pass removed or rewrote one of the two
    kernel: the kernel that computes both; null unless fused or duplicated
    stage: label of the first stage in which they are in one kernel; null unless fused or duplicated
    reason: id of the rule that refused the pair, or ``unknown``; null unless not fused
    message: the compiler's own words, with its numbers
    evidence: ``recorded``: the compiler's record gives ``message``; ``re-evaluated``: a replay of
        its rules gives the reason; ``agree``: both give the same; ``disagree``: both, and they
        differ; ``guess``: a replay gives the reason, by rules that were not checked against this
        version or do not make the compiler's plan; ``inferred``: a rule that was found by
        experiment gives it, for a compiler whose code is closed, and ``numbers.refused`` says how
        often it was right; null without evidence
    numbers: what the rule looked at, from the replay
    pass_: the pass before the main fusion pass whose decision the reason is: it gave one of the two
        a kernel and left the other outside; null if the main fusion pass decided
    otherwise: the rule that the replay gives if it disagrees with the record
    bytes_saved: bytes, over all runs, that need not pass through memory if both are in one kernel:
        saved if they are, and not saved if they are not; 0 where one is gone
    source: the user's lines
    cost: on a GPU, the compiler's cost comparison if the reason is that the fusion would take
        longer; times are microseconds
    fused_by_later_pass: of a pair that was fused, the refusal of a pass before the one that fused
        it
    """

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
    """A refused pair at the border of a kernel.

    producer: name of the producer before fusion
    consumer: name of the consumer before fusion
    reason: id of the rule that refused the pair
    bytes_saved: bytes, over all runs, that need not pass through memory if both are in one kernel
    """

    producer: Annotated[str, At("producer.name")]
    consumer: Annotated[str, At("consumer.name")]
    reason: str | None
    bytes_saved: int


class KernelPage(Form):
    """One kernel by itself.

    name: the kernel, as in ``kernels[].name``
    inputs: what it reads
    outputs: what it writes
    hlo: lines of HLO: the launch, and what is in a fusion
    sources: the user's lines that it computes, as ``file:line``
    began: refused pairs whose consumer is in it: why it begins where it does
    ended: refused pairs whose producer is in it: why it ends where it does
    """

    name: Annotated[str, At("kernel.name")]
    inputs: list[KernelInput]
    outputs: list[KernelOutput]
    hlo: list[str]
    sources: list[str]
    began: list[Border]
    ended: list[Border]


class BranchRow(Form):
    """A branch of the tree, followed by the branches below it.

    path: the names from the root to the branch, which is the last
    count: how many parts of the program it is, if these differ only in numbers: the layers of a
        model
    launches: kernels that a run launches
    bytes_moved: bytes that these move in a run
    time_us: their estimated microseconds in a run; 0 if nothing is known of the device
    refused_bytes: bytes that pairs could save that were not fused, where the producer comes from
    spill_bytes: bytes that kernels spill (``--show resources``); null if nothing is known of the
        resources of any of them
    at_best_us: least microseconds of one kernel that does the same; null unless a GPU or TPU is
        known
    limited_by: what takes over half of the time: ``launches``, ``memory`` (reading and writing),
        ``compute``, ``library`` (calls of libraries), ``unexplained`` (kernels of a TPU of which
        neither bytes nor products explain half), ``mixed`` (none of these); null unless a GPU or
        TPU is known
    """

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
    """The launches, bytes and time by part.

    by: ``scope`` (the framework's name of operations), ``stack`` (call stacks, the outermost call
        first), ``file`` (file and line of the innermost call), ``kind`` (of kernels): what ``--by``
        says, or else by scope, if programs have scopes
    rows: the branches of a tree, each before those below it, the largest first
    """

    by: Grouping
    rows: Annotated[list[BranchRow], At(_rows)]


class ChangedFigure(Form):
    """A count without the changes, and with them.

    before: launches of a run by the rules as they are
    after: launches of a run by the changed rules, for the other GPU
    """

    before: Annotated[int, At("0")]
    after: Annotated[int, At("1")]


class Figures(Form):
    """The cost of one run of the final module.

    launches: kernels that a run launches
    bytes: bytes that these read and write
    time_us: estimated microseconds; null if nothing is known of the device
    """

    launches: int
    bytes: Annotated[int, At("bytes_moved")]
    time_us: float | None


class ChangedTime(Form):
    """Microseconds without the changes, and with them.

    before: by the rules as they are
    after: by the changed rules
    """

    before: Annotated[float, At("0")]
    after: Annotated[float, At("1")]


def _changed_time(change: result.WhatIf) -> tuple[float, float] | None:
    times = change.before.time_us, change.after.time_us
    return None if times[0] is None or times[1] is None else (times[0], times[1])


class ChangedFigures(Form):
    """The cost of the final module without the changes, and with them.

    before: by the rules as they are
    after: by the changed rules
    """

    before: Annotated[Figures, At("0")]
    after: Annotated[Figures, At("1")]


class WhatIf(Form):
    """The effect of changed rules, or of another GPU.

    changes: the changes, and the other GPU, in words
    launches: launches of a run
    bytes_moved: bytes that a run reads and writes
    time_us: estimated microseconds of a run; null if nothing is known of the device
    final: the final module, and what it would be if the passes behind fusion did the same as they
        did; null for another GPU, or if it was not dumped
    peak_bytes: an estimate of the peak of memory in the final module, its instructions ordered anew
        by the compiler's rules; null if the dump does not show it
    gone: kernels that the changed rules do not make, whatever they are called, the longest first
    made: kernels that only the changed rules make
    pairs: pairs that share a kernel in one of the two cases only
    guess: whether the unchanged rules were not checked against this version, or do not make the
        compiler's plan
    notes: what this leaves out, one line each
    """

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
    """A refused pair.

    producer: name of the instruction before fusion
    consumer: the same
    """

    producer: Annotated[str, At("0")]
    consumer: Annotated[str, At("1")]


class Suggestion(Form):
    """A change that was tried, and its result.

    number: its place: a pair in a report refers to it by *try 1*
    kind: ``flag`` (of the compiler), ``rule`` (a change of its rules, for ``rerun``), ``recipe``
        (an edit of the program)
    change: the flag as XLA_FLAGS takes it, the options of ``rerun`` (and ``explain``), the id of
        the recipe
    evidence: how it was tried: ``replayed`` (the fusion passes, by the compiler's rules),
        ``region`` (what a recipe changes, or a flag concerns, was cut out and compiled before and
        after it), ``compiled`` (all of the program, by the compiler), ``measured`` (compiled, and
        timed beside the program as it is), ``untried`` (a recipe that matches, without figures)
    pairs: the refused pairs that it fuses, or, if it was compiled, whose value is no longer
        written; with the evidence ``region`` or ``untried``, those of operations that it concerns
    before: the figures without the change; null with the evidence ``untried``
    after: the same with the change
    title: a few words on a recipe; empty for other changes
    recipe: a recipe as ``rerun --recipe`` takes it: its id, with limits such as
        ``unroll-loop,times=8``; empty for other changes
    sources: the user's lines that a recipe changes, as ``file:line``
    removes: the kernels of the final module that only move data and that it removes, as in
        ``movements[].kernel``; empty for a rejected change
    keeps: the values, in ``recomputed.values[].value.name``, that it computes once
    why_not: why it is not worth it; null for a change that helps
    command: the command line that compiles the module with it, or shows the recipe; null if the
        dump lacks what that needs
    """

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
    """A suggestion beside those before it.

    number: that of the suggestion
    after: the figures with it and those before it
    """

    number: int
    after: Figures


class ExcludedSuggestion(Form):
    """A suggestion that is not among those to take together.

    number: that of the suggestion
    why: that it adds nothing to them, was not tried with them, or is excluded by them: after their
        edits, it fits nowhere
    """

    number: int
    why: str


class Together(Form):
    """The best suggestions together.

    steps: the suggestions
    excluded: suggestions that are not among them
    before: the figures without any of them
    after: the figures with all of them
    evidence: ``region`` if differences of regions are added up, or as for a suggestion
    command: the command line that compiles the module with all of them; null if the dump lacks what
        that needs
    """

    steps: list[TogetherStep]
    excluded: list[ExcludedSuggestion]
    before: Figures
    after: Figures
    evidence: HowTried
    command: Annotated[str | None, At(command_of)]


class Answer(Form):
    """What is known to help against one of the costliest kinds of refusals.

    pairs: the refused pairs, the costliest first
    suggestions: the suggestions that fuse one of these pairs
    unmeasured: the changes that fuse one of them on a CPU and were not timed
    rejected: the rejected changes that fuse one of them
    in_vain: the changes that were tried and fuse none of these pairs: those for them, then flags
    untried: changes for these pairs that would take too long to try
    why: why no change of a rule can fuse these pairs; null if one was a candidate
    """

    pairs: Annotated[list[FusedPair], At("1.pairs")]
    suggestions: Annotated[list[int], At(_numbers("helpful"))]
    unmeasured: Annotated[list[int], At(_numbers("unmeasured"))]
    rejected: Annotated[list[int], At(_numbers("rejected"))]
    in_vain: Annotated[list[str], At("1.in_vain")]
    untried: Annotated[int, At("1.untried")]
    why: Annotated[str | None, At("1.why")]


class ModuleForm(Form):
    """One module.

    name: name of the module, from the names of its files
    number: its number in the dump
    backend: ``cpu``, ``gpu`` or ``tpu``
    device: the GPU that the program was compiled for, in words
    flags: compiler flags that change fusion and are not at their default, as ``name=value``
    rules: the rules that were replayed; null if no pass was replayed
    stages: the stages that are compared
    summary: totals
    kernels: every kernel of the final stage, those that move most bytes first
    pairs: the selected pairs, those with most ``bytes_saved`` first; all pairs if none were
        selected
    near: names, or pairs, near to the requested ones, if those select no pairs
    kernel_pages: the kernels that ``--kernel`` asks for
    breakdown: where launches, bytes and time go
    notes: what could not be found or read, one line each
    loops: loops of the final stage
    graphs: CUDA graphs (command buffers); null if the dump shows none
    what_if: what changed rules, or another GPU, would fuse; null unless rules were changed or
        another GPU than that of the dump was named
    suggestions: changes that were tried and help, those that save most first; empty with
        ``--no-try``
    unmeasured: for a CPU, changes that make fewer launches or bytes by a replay, and were not
        timed: many of these are slower; the fields of a suggestion
    rejected: changes that were tried and do not: they fuse none of the refused pairs, or make the
        module slower by the estimate; the fields of a suggestion
    untried: candidates that were not tried because trying them would have taken too long
    together: the best suggestions together; null if there are no two
    answers: what is known to help against the costliest refusals
    """

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
    namespace={"__doc__": f"A module.\n\n{_FOUND.__doc__}"},
)


class ModuleRow(Form):
    """The cost of one module.

    name: name of the module
    number: its number in the names of files
    device: what it was compiled for, in words; empty if the dump does not tell it
    launches: kernels that its final stage launches in a run
    bytes_moved: bytes that its final stage moves in a run
    time_us: estimated microseconds of a run; null if nothing is known of the device
    refused_bytes: bytes that pass through memory in a run because pairs were not fused; null if its
        pairs were not looked at
    helper: whether JAX compiled it for a function of its own, such as ``jax.random.normal``: no
        call stack in it has a function of its name
    """

    name: str
    number: int
    device: str
    launches: int
    bytes_moved: int
    time_us: float | None
    refused_bytes: int | None
    helper: Annotated[bool, At("is_helper")]


_ABOUT = """The modules of a dump.

path: the dump, as it was named on the command line
modules: the modules that were explained, those that move most bytes first
folded: the modules that were omitted because they cost little, or because JAX compiled them for
    functions of its own: ``--all`` shows all of them, ``--module`` shows one
problems: one line for each module that could not be read, with the file; one on operations that no
    rule covers
"""
Document = defstruct(
    "Document",
    [
        ("path", str),
        ("modules", list[Module]),  # type: ignore[valid-type]
        ("folded", list[ModuleRow]),
        ("problems", list[str]),
    ],
    bases=(Form,),
    namespace={"__doc__": _ABOUT},
    tag_field="schema",
    tag="fusionscope.explain/1",
)
