"""Collects what the classes of rules, and the books of all versions, say of each rule."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from fusionscope.dump.fusion_passes import Purpose, find_fusion_pass
from fusionscope.passes.causes import CAUSES, Cause
from fusionscope.passes.cpu.multi_output_fusion.rules import MultiOutputLegal
from fusionscope.passes.rule import Rule, RuleBook
from fusionscope.passes.tpu.accuracy import accuracy_of, libtpu
from fusionscope.passes.tpu.rules import PASS_NAME, TPU_RULES, TpuRule
from fusionscope.rules.facts import RuleFacts
from fusionscope.versions import known


def collect_facts() -> Iterator[RuleFacts]:
    """Yield all rules in the order of passes and of the compiler; then the causes."""
    yield from map(_facts_of_rule, known.all_rules())
    yield from map(_facts_of_tpu_rule, TPU_RULES)
    yield from _facts_of_calls()
    yield from map(_facts_of_cause, CAUSES)


def is_legality(id: str) -> bool:
    """Return whether there is no code, or a wrong one, without this rule.

    This loads no more compilers than necessary; an unknown rule is none of these.
    """
    causes = {cause.id: cause.is_legality for cause in CAUSES}
    if id in causes:
        return causes[id]
    rule = next((rule for rule in TPU_RULES if rule.id == id), None) or known.find_rule(id)
    return rule is not None and rule.is_legality


def _facts_of_rule(rule: Rule) -> RuleFacts:
    forms = _forms()[rule.id]
    newest, _ = next(iter(forms.values()))
    purpose = find_fusion_pass(newest.pass_name, newest.backend).purpose
    thresholds = {release: form.thresholds for release, (_, form) in forms.items()}
    return RuleFacts(
        id=rule.id,
        message=rule.message,
        is_legality=rule.is_legality,
        pass_name=newest.pass_name,
        backend=newest.backend,
        versions=tuple(sorted(forms, key=_numbers)),
        thresholds=rule.thresholds,
        older_thresholds={
            release: older for release, older in thresholds.items() if older != rule.thresholds
        },
        # Wrapping one operation fuses nothing, and no fusion can be formed against what makes it
        # legal.
        can_be_left_out=purpose is not Purpose.WRAPS and rule.id != MultiOutputLegal.id,
    )


def _facts_of_tpu_rule(rule: TpuRule) -> RuleFacts:
    return _without_book(rule, PASS_NAME, "tpu", _accuracy(rule.id))


def _facts_of_calls() -> Iterator[RuleFacts]:
    """Yield the conditions for calls of libraries on GPUs, which a dump for a CPU does not need."""
    from fusionscope.passes.gpu.conv_rewriter.epilogues import CONVOLUTIONS
    from fusionscope.passes.gpu.gemm_rewriter.epilogues import EPILOGUES
    from fusionscope.passes.gpu.gemm_rewriter.float8 import FLOAT8

    for book in (FLOAT8, EPILOGUES, CONVOLUTIONS):
        for rule in book:
            yield _without_book(rule, book.pass_name, book.backend, "")


def _facts_of_cause(cause: type[Cause]) -> RuleFacts:
    accuracy = _accuracy(cause.id)
    backend = f"{cause.backend}, tpu" if accuracy else cause.backend
    return _without_book(cause, cause.pass_name, backend, accuracy)


def _without_book(
    rule: Rule | type[Cause], pass_name: str, backend: str, accuracy: str
) -> RuleFacts:
    """Return the facts about a rule that no replay applies, so that it cannot be changed."""
    return RuleFacts(
        id=rule.id,
        message=rule.message,
        is_legality=rule.is_legality,
        pass_name=pass_name,
        backend=backend,
        thresholds={},
        older_thresholds={},
        accuracy=accuracy,
    )


def _accuracy(id: str) -> str:
    """Return how often a rule was right on TPUs, empty if it was not counted."""
    accuracy = accuracy_of(id)
    if accuracy is None:
        return ""
    return f"with libtpu {libtpu()}, {accuracy} such pairs of other programs were not fused"


@cache
def _forms() -> dict[str, dict[str, tuple[RuleBook[Any], Rule]]]:
    """Return each rule with the book that it is in: by its id, and by the release in whose dumps
    the pass was active, the newest first.
    """
    forms: dict[str, dict[str, tuple[RuleBook[Any], Rule]]] = {}
    for release, book in _active_books():
        for rule in book:
            forms.setdefault(rule.id, {}).setdefault(release, (book, rule))
    return forms


def _active_books() -> Iterator[tuple[str, RuleBook[Any]]]:
    for compiler in known.all_compilers():
        for fusion_pass in compiler.passes:
            if fusion_pass.name not in compiler.unseen:
                yield compiler.release, fusion_pass.book


def _numbers(version: str) -> tuple[int, ...]:
    """Return a key to sort by; a version that is a year, seen without jax, comes first."""
    return tuple(int(part) for part in version.split(".")) if "." in version else ()
