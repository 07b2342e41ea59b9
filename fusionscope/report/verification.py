"""A verification in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.dump.agreement import Agreement, total
from fusionscope.verify import rules_in_words
from fusionscope.words.section import Column, Line, Lines, Section, Span, Table, Tone, line, lines
from fusionscope.words.text import plural, program

if TYPE_CHECKING:
    from fusionscope.passes.gpu.priority_fusion.record import PriorityComparison
    from fusionscope.verify.inferred import InferredVerification
    from fusionscope.verify.verification import (
        ModuleVerification,
        PassVerification,
        Verification,
    )

_TONES = {
    "identical": Tone.GOOD,
    "no change": Tone.GOOD,
    "same kernels": Tone.WARNING,
    "differs": Tone.BAD,
}
_COLUMNS = (
    Column("pass", wraps=True),
    Column("rules", wraps=True),
    Column("plan"),
    Column("pairs", is_number=True),
    Column("recorded", is_number=True),
)


def sections_of(verification: Verification) -> Iterator[Section]:
    """Yield each module, and the agreement of all."""
    yield from map(_module, verification.modules)
    yield from map(_inferred_module, verification.inferred)
    yield Section(title=_summary(verification), is_heading=True)


def _module(module: ModuleVerification) -> Section:
    return Section(
        title=f"{_heading(module)}, {module.rules.version}",
        blocks=(
            lines([rules_in_words.in_words(module.rules)], rules_in_words.tone(module.rules)),
            Table(columns=_COLUMNS, rows=tuple(map(_row, module.passes)), noun="pass"),
            Lines(tuple(text for run in module.passes for text in _below(run))),
        ),
        is_heading=True,
    )


def _row(run: PassVerification) -> tuple[str | Span, ...]:
    plan = _plan(run)
    return (
        run.pass_name,
        run.book,
        Span(plan, _TONES[plan]),
        _share(run.pairs),
        _share(run.decisions),
    )


def _below(run: PassVerification) -> Iterator[Line]:
    """Yield how many decisions of priority fusion agree, and the first differences."""
    if run.steps is not None and (steps := _steps(run.steps)):
        yield line(f"{run.pass_name}: {steps}", Tone.QUIET)
    for difference in _differences(run):
        yield line(difference, Tone.BAD)


def _inferred_module(module: InferredVerification) -> Section:
    texts = [line(_inferred([module]))]
    if module.wrong is not None:
        texts.append(line(module.wrong, Tone.BAD))
    return Section(
        title=f"{_heading(module)}, {module.device or 'an unknown TPU'}",
        blocks=(Lines(tuple(texts)),),
        is_heading=True,
    )


def _heading(module: ModuleVerification | InferredVerification) -> str:
    folder = f" in {module.folder}" if module.folder != "." else ""
    return f"{program(module.name)}{folder}"


def _percent(share: float) -> str:
    """Return a percentage, rounded down: 100% means all."""
    return f"{math.floor(share * 100) / 100:g}%"


def _plan(verification: PassVerification) -> str:
    if verification.is_identical:
        return "identical" if verification.after else "no change"
    return "same kernels" if verification.has_same_kernels else "differs"


def _share(part: Agreement, noun: str = "") -> str:
    """Return how many of those that were compared agree, with ``noun`` if there is one."""
    if not part.compared:
        return f"- {noun}s" if noun else "-"
    return f"{part.agreeing:,} of {plural(part.compared, noun) if noun else f'{part.compared:,}'}"


def _steps(steps: PriorityComparison) -> str:
    """Return how many of the decisions of priority fusion agree."""
    shares = [
        ("priorities", steps.native),
        ("priorities with Triton", steps.with_triton),
        ("reasons", steps.reasons),
        ("fusions", steps.fusions),
    ]
    words = [f"{_share(share)} {name}" for name, share in shares if share.compared]
    if steps.reasons_of_another:
        words.append(f"{plural(steps.reasons_of_another, 'reason')} for another consumer")
    return "; ".join(words)


def _differences(verdict: PassVerification) -> Iterator[str]:
    """Yield the first difference of each kind, both sides."""
    if verdict.divergence is not None:
        where = f"{verdict.divergence.what} in {verdict.divergence.computation}"
        if verdict.has_same_kernels:
            where = f"kernel outputs in a different order, {where}"
        yield f"{verdict.pass_name}, {where}: replay {verdict.divergence.ours or 'nothing'}"
        yield f"{verdict.pass_name}, {where}: compiler {verdict.divergence.theirs or 'nothing'}"
    if verdict.disagreement is not None:
        yield f"{verdict.pass_name}, decision: replay {verdict.disagreement.ours or 'nothing'}"
        yield f"{verdict.pass_name}, decision: compiler {verdict.disagreement.theirs or 'nothing'}"


def _summary(verification: Verification) -> str:
    words = [_agreement(verification)] if verification.agreement is not None else []
    if verification.inferred:
        words.append(_inferred(verification.inferred))
    return "; ".join(words)


def _inferred(modules: Sequence[InferredVerification]) -> str:
    pairs = total(module.pairs for module in modules)
    refused = Agreement(sum(module.refused for module in modules), pairs.agreeing)
    return (
        f"inferred rules: {_share(pairs, 'pair')} that they refuse were refused, "
        f"{_share(refused, 'refused pair')} have a rule"
    )


def _agreement(verification: Verification) -> str:
    passes = verification.passes
    identical = sum(fusion_pass.is_identical for fusion_pass in passes)
    reordered = sum(fusion_pass.has_same_kernels for fusion_pass in passes) - identical
    return (
        f"{_percent(verification.agreement or 0)} agreement: "
        f"{identical:,} of {plural(len(passes), 'plan')} identical, "
        f"{f'{reordered:,} with the same kernels, ' if reordered else ''}"
        f"{_share(total(run.pairs for run in passes), 'pair')}, "
        f"{_share(total(run.decisions for run in passes), 'recorded decision')}"
    )
