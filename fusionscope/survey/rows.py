"""Makes rows from what ``explain`` and ``verify`` found; it computes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope import __version__
from fusionscope.dump.names import without_build
from fusionscope.facts.result import KernelFacts, ModuleFacts, Operation, PairFacts, Refusals
from fusionscope.facts.scopes import scope_of
from fusionscope.facts.suggestions import HowTried, Suggestion, Suggestions
from fusionscope.findings.advisories.facts import Advisory
from fusionscope.findings.memory.facts import MemoryFacts
from fusionscope.survey.tables import (
    AdvisoryRow,
    KernelRow,
    MemoryRow,
    ModuleRow,
    PairRow,
    RefusalRow,
    Row,
    SuggestionRow,
    VerifyRow,
)
from fusionscope.verify.verification import Verification

INFERRED = "inferred"  # the pass of TPUs


def rows_of(
    content: str,
    facts: ModuleFacts,
    suggestions: Suggestions | None,
    verification: Verification | None,
) -> dict[str, list[Row]]:
    """Return the rows about one module, by table."""
    return {
        "modules": [_module(content, facts)],
        "kernels": [kernel_row(content, kernel) for kernel in facts.kernels],
        "pairs": [pair_row(content, pair) for pair in facts.pairs],
        "refusals": [_refusal(content, group) for group in facts.alike.refusals],
        "suggestions": list(_suggestions(content, suggestions)),
        "memory": list(_memory(content, facts)),
        "advisories": [_advisory(content, fault) for fault in facts.find_all(Advisory)],
        "verify": list(_verified(content, verification)),
    }


def _scope(op_name: str | None) -> str | None:
    """Return the scope of an operation, None if it is in none."""
    return "/".join(scope_of(op_name)[:-1]) or None if op_name else None


def _module(content: str, facts: ModuleFacts) -> ModuleRow:
    totals, rules, outcomes = facts.summary, facts.rules, facts.summary.outcomes
    return ModuleRow(
        content=content,
        module=facts.name,
        program=without_build(facts.name),
        backend=facts.backend,
        arguments=", ".join(facts.arguments),
        kernels=len(facts.kernels),
        launches=totals.launches,
        launches_before=totals.launches_before,
        bytes_moved=totals.bytes_moved,
        bytes_before=totals.bytes_before,
        time_us=totals.time.microseconds if totals.time is not None else None,
        time_before_us=totals.time_before.microseconds if totals.time_before is not None else None,
        at_best_us=totals.at_best_us,
        limited_by=totals.limited_by,
        pairs=len(facts.pairs),
        fused=outcomes["fused"],
        duplicated=outcomes["duplicated"],
        not_fused=outcomes["not-fused"],
        gone=outcomes["gone"],
        refused_bytes=sum(reason.bytes_saved for reason in facts.summary.reasons.values()),
        rules=rules.name if rules is not None else None,
        rules_checked=rules.are_checked if rules is not None else None,
        plans=rules.plans.compared if rules is not None else None,
        plans_agreeing=rules.plans.agreeing if rules is not None else None,
        fusionscope=__version__,
    )


def kernel_row(content: str, kernel: KernelFacts) -> KernelRow:
    return KernelRow(
        content=content,
        kernel=kernel.name,
        kind=kernel.kind,
        emitter=kernel.emitter,
        computation=kernel.computation,
        members=kernel.members,
        bytes_read=kernel.bytes_read * kernel.runs,
        bytes_written=kernel.bytes_written * kernel.runs,
        bytes_moved=kernel.bytes_moved,
        launches=kernel.launches,
        launches_known=kernel.runs_known,
        time_us=kernel.time_us if kernel.time_ns is not None else None,
        time_source=kernel.time_source,
        op_name=kernel.op_name,
        scope=_scope(kernel.op_name),
        source=kernel.source,
    )


def pair_row(content: str, pair: PairFacts) -> PairRow:
    producer, consumer = pair.producer, pair.consumer
    op_name, source = _place(producer, consumer)
    return PairRow(
        content=content,
        producer=producer.name,
        producer_opcode=producer.opcode,
        producer_shape=producer.shape,
        consumer=consumer.name,
        consumer_opcode=consumer.opcode,
        consumer_shape=consumer.shape,
        computation=pair.computation,
        outcome=pair.outcome,
        kernel=pair.kernel,
        stage=pair.stage,
        reason=pair.reason,
        title=pair.title,
        message=pair.message,
        evidence=pair.evidence,
        decided_by=pair.decided_by,
        bytes_saved=pair.bytes_saved,
        op_name=op_name,
        scope=_scope(op_name),
        source=source,
        consumer_source=consumer.source,
    )


def _place(producer: Operation, consumer: Operation) -> tuple[str | None, str | None]:
    """Return the name and the line of the producer, or those of the consumer where it has none."""
    return producer.op_name or consumer.op_name, producer.source or consumer.source


def _refusal(content: str, refusals: Refusals) -> RefusalRow:
    pair = refusals.example
    op_name, source = _place(pair.producer, pair.consumer)
    return RefusalRow(
        content=content,
        reason=pair.reason or "",
        title=pair.title,
        evidence=pair.evidence,
        decided_by=pair.decided_by,
        producer=pair.producer.name,
        producer_opcode=pair.producer.opcode,
        consumer=pair.consumer.name,
        consumer_opcode=pair.consumer.opcode,
        pairs=refusals.count,
        bytes_saved=refusals.bytes_saved,
        scope=_scope(op_name),
        source=source,
    )


def _suggestions(content: str, suggestions: Suggestions | None) -> Iterator[SuggestionRow]:
    if suggestions is not None:
        for group, helps in ((suggestions.helpful, True), (suggestions.unmeasured, False)):
            for suggestion in group:
                yield _suggestion(content, suggestion, helps=helps)


def _suggestion(content: str, suggestion: Suggestion, *, helps: bool) -> SuggestionRow:
    is_tried = suggestion.evidence is not HowTried.UNTRIED
    is_timed = suggestion.before.time_us is not None and suggestion.after.time_us is not None
    return SuggestionRow(
        content=content,
        kind=suggestion.kind,
        change=suggestion.change,
        title=suggestion.title,
        evidence=suggestion.evidence,
        helps=helps,
        pairs=len(suggestion.pairs),
        launches_saved=suggestion.saved_launches if is_tried else None,
        bytes_saved=suggestion.saved_bytes if is_tried else None,
        time_saved_us=suggestion.saved_us if is_tried and is_timed else None,
    )


def _memory(content: str, facts: ModuleFacts) -> Iterator[MemoryRow]:
    memory = facts.find(MemoryFacts)
    if memory is not None:
        yield MemoryRow(
            content=content,
            total_bytes=memory.total_bytes,
            parameters=memory.parameters,
            donated=memory.donated,
            outputs=memory.outputs,
            temporaries=memory.temporaries,
            constants=memory.constants,
            thread_local=memory.thread_local,
            fragmentation=memory.fragmentation,
            peak_bytes=memory.peak_bytes,
            peak_instruction=memory.peak_instruction,
        )


def _advisory(content: str, advisory: Advisory) -> AdvisoryRow:
    return AdvisoryRow(
        content=content,
        fault=advisory.id,
        title=advisory.title,
        thread=advisory.thread,
        fixed_in=advisory.fixed_in,
        workaround=advisory.workaround,
        is_certain=advisory.is_certain,
        kernels=advisory.instructions,
        source=advisory.source,
    )


def _verified(content: str, verification: Verification | None) -> Iterator[VerifyRow]:
    if verification is None:
        return
    for fusion_pass in verification.passes:
        yield VerifyRow(
            content=content,
            pass_name=fusion_pass.pass_name,
            rules=fusion_pass.book,
            identical=fusion_pass.is_identical,
            same_kernels=fusion_pass.has_same_kernels,
            pairs=fusion_pass.pairs.compared,
            pairs_agreeing=fusion_pass.pairs.agreeing,
            decisions=fusion_pass.decisions.compared,
            decisions_agreeing=fusion_pass.decisions.agreeing,
        )
    for inferred in verification.inferred:
        yield VerifyRow(
            content=content,
            pass_name=INFERRED,
            rules=INFERRED,
            identical=None,
            same_kernels=None,
            pairs=inferred.pairs.compared,
            pairs_agreeing=inferred.pairs.agreeing,
            decisions=0,
            decisions_agreeing=0,
        )
