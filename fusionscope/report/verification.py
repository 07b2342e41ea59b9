"""A verification as JSON, as Markdown, and on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.verify import rules_in_words as rules_used
from fusionscope.words.text import cell, plural, safe, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.passes.gpu.priority_fusion.record import PriorityComparison
    from fusionscope.verify.inferred import InferredVerification
    from fusionscope.verify.verification import (
        ModuleVerification,
        PassVerification,
        Verification,
    )

_STYLES = {"identical": "green", "no change": "green", "same kernels": "yellow", "differs": "red"}


def _heading(module: ModuleVerification | InferredVerification) -> str:
    folder = f" in {module.folder}" if module.folder != "." else ""
    return safe(f"{module.name}{folder}")


def _percent(share: float) -> str:
    """Return a percentage, rounded down: 100% means all."""
    return f"{math.floor(share * 100) / 100:g}%"


def _plan(verification: PassVerification) -> str:
    if verification.is_identical:
        return "identical" if verification.after else "no change"
    return "same kernels" if verification.has_same_kernels else "differs"


def _share(agreeing: int, compared: int, noun: str = "") -> str:
    """Return how many of those that were compared agree, with ``noun`` if there is one."""
    if not compared:
        return f"- {noun}s" if noun else "-"
    return f"{agreeing:,} of {plural(compared, noun) if noun else f'{compared:,}'}"


def _steps(steps: PriorityComparison) -> str:
    """Return how many of the decisions of priority fusion agree."""
    shares = [
        ("priorities", steps.native),
        ("priorities with Triton", steps.with_triton),
        ("reasons", steps.reasons),
        ("fusions", steps.fusions),
    ]
    words = [
        f"{_share(verification.agreeing, verification.steps)} {name}"
        for name, verification in shares
        if verification.steps
    ]
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
    pairs, agreeing, refused = (
        sum(getattr(module, name) for module in modules)
        for name in ("pairs", "agreeing", "refused")
    )
    return (
        f"inferred rules: {_share(agreeing, pairs, 'pair')} that they refuse were refused, "
        f"{_share(agreeing, refused, 'refused pair')} have a rule"
    )


def _agreement(verification: Verification) -> str:
    passes = verification.passes
    identical = sum(fusion_pass.is_identical for fusion_pass in passes)
    reordered = sum(fusion_pass.has_same_kernels for fusion_pass in passes) - identical
    pairs = sum(fusion_pass.pairs for fusion_pass in passes)
    decisions = sum(fusion_pass.decisions for fusion_pass in passes)
    decisions_agreeing = sum(fusion_pass.decisions_agreeing for fusion_pass in passes)
    return (
        f"{_percent(verification.agreement or 0)} agreement: "
        f"{identical:,} of {plural(len(passes), 'plan')} identical, "
        f"{f'{reordered:,} with the same kernels, ' if reordered else ''}"
        f"{_share(sum(fusion_pass.pairs_agreeing for fusion_pass in passes), pairs, 'pair')}, "
        f"{_share(decisions_agreeing, decisions, 'recorded decision')}"
    )


def to_markdown(verification: Verification) -> str:
    return "\n".join(_markdown(verification)) + "\n"


def _markdown(verification: Verification) -> Iterator[str]:
    yield f"{cell(_summary(verification))}\n"
    for module in verification.modules:
        yield f"{cell(_heading(module))}, {module.rules.version}: "
        yield f"{cell(rules_used.in_words(module.rules))}\n"
    for inferred in verification.inferred:
        yield f"{cell(_heading(inferred))}: {cell(_inferred([inferred]))}\n"
    yield "| module | pass | rules | plan | pairs | recorded |"
    yield "|---|---|---|---|--:|--:|"
    for module in verification.modules:
        for row in module.passes:
            yield (
                f"| {cell(_heading(module))} | {cell(row.pass_name)} | {cell(row.book)} "
                f"| {_plan(row)} | {_share(row.pairs_agreeing, row.pairs)} "
                f"| {_share(row.decisions_agreeing, row.decisions)} |"
            )
    yield ""
    for module in verification.modules:
        for row in module.passes:
            if row.steps is not None and _steps(row.steps):
                steps = f"{row.pass_name}: {_steps(row.steps)}"
                yield f"{cell(_heading(module))}, {cell(steps)}\n"
            for line in _differences(row):
                yield f"> {cell(_heading(module))}: {cell(line)}\n"
    for problem in (*verification.problems, *verification.notes):
        yield f"> {cell(problem)}\n"


def print_verification(verification: Verification, console: Console) -> None:
    """Print it to a terminal."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    for module in verification.modules:
        heading = f"{_heading(module)}, {module.rules.version}"
        console.print(Text(shorten(heading, console.width), style="bold"))
        rules = Text(safe(rules_used.in_words(module.rules)), style=rules_used.style(module.rules))
        console.print(Padding(rules, (0, 0, 0, 2)))
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for name, is_number in (
            ("pass", False), ("rules", False), ("plan", False), ("pairs", True),
            ("recorded", True),
        ):  # fmt: skip
            table.add_column(name, justify="right" if is_number else "left", overflow="fold")
        for row in module.passes:
            table.add_row(
                safe(row.pass_name),
                row.book,
                Text(_plan(row), style=_STYLES[_plan(row)]),
                _share(row.pairs_agreeing, row.pairs),
                _share(row.decisions_agreeing, row.decisions),
            )
        console.print(Padding(table, (0, 0, 0, 2)))
        for row in module.passes:
            if row.steps is not None and _steps(row.steps):
                steps = Text(f"{row.pass_name}: {_steps(row.steps)}", style="dim")
                console.print(Padding(steps, (0, 0, 0, 4)))
            for line in _differences(row):
                console.print(Padding(Text(safe(line), style="red"), (0, 0, 0, 4)))
    for inferred in verification.inferred:
        heading = f"{_heading(inferred)}, {inferred.device or 'an unknown TPU'}"
        console.print(Text(shorten(heading, console.width), style="bold"))
        console.print(Padding(Text(_inferred([inferred])), (0, 0, 0, 2)))
        if inferred.wrong is not None:
            console.print(Padding(Text(safe(inferred.wrong), style="red"), (0, 0, 0, 4)))
    console.print(Text(_summary(verification), style="bold"))
